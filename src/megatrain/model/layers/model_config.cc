#include "megatrain/model/layers/model_config.h"

namespace megatrain {

ModelConfig ModelConfig::with_layers(const std::vector<int64_t>& kept) const {
  ModelConfig few = *this;
  few.layers = std::ssize(kept);
  few.window.clear();
  few.no_rope.clear();
  few.experts.layers.clear();
  few.delta_net.layers.clear();
  few.mamba2.layers.clear();
  for (const int64_t layer : kept) {
    few.window.push_back(window[static_cast<size_t>(layer)]);
    if (!no_rope.empty()) few.no_rope.push_back(no_rope[static_cast<size_t>(layer)]);
    if (!delta_net.layers.empty()) few.delta_net.layers.push_back(delta_net.in_layer(layer));
    if (!mamba2.layers.empty()) few.mamba2.layers.push_back(mamba2.in_layer(layer));
    if (experts.count > 0) few.experts.layers.push_back(experts.in_layer(layer));
  }
  return few;
}

}  // namespace megatrain
