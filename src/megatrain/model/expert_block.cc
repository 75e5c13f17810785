#include "megatrain/model/expert_block.h"

#include "megatrain/base/error.h"

namespace megatrain {

std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& /*config*/, const ModelShape& /*shape*/,
                                                        int64_t /*layer*/, std::span<const LayerLayout> /*records*/) {
  fail_internal("experts are not computed yet");
}

}  // namespace megatrain
