// How much of a block's inner activations waits from its forward to its backward; the rest is computed again. Each
// level keeps what the one before it keeps. Where they wait is for the plan to say.
#pragma once

#include <array>
#include <cstdint>

namespace megatrain {

enum class Keep : uint8_t {
  nothing,     // the block is recomputed from its input
  outputs,     // attention's output with its row statistics: all but attention itself is recomputed
  attention,   // q, k, v, attention's output and what it makes of the residual stream: only the MLP is recomputed
  products,    // gate and up too: only norms and SwiGLU are recomputed
  everything,  // nothing is recomputed
};
inline constexpr std::array kKeeps = {Keep::nothing, Keep::outputs, Keep::attention, Keep::products, Keep::everything};

constexpr const char* keep_name(Keep keep) {
  switch (keep) {
    case Keep::nothing: return "nothing";
    case Keep::outputs: return "outputs";
    case Keep::attention: return "attention";
    case Keep::products: return "products";
    case Keep::everything: return "everything";
  }
  return "?";
}

}  // namespace megatrain
