#include "megatrain/model/layers/model_config.h"

#include <algorithm>

namespace megatrain {

int64_t ModelConfig::kv_source(int64_t layer) const {
  const int64_t own = layers - kv_readers;
  const auto local = [&](int64_t l) { return window[static_cast<size_t>(l)] > 0; };
  if (layer < own) return -1;
  int64_t source = own - 1;
  while (source >= 0 && local(source) != local(layer)) --source;
  return source;
}

bool ModelConfig::attends(int64_t layer) const {
  if (delta_net.in_layer(layer) || gated_conv.in_layer(layer) || !mixes(layer)) return false;
  return !mamba2.in_layer(layer) || mamba2.beside_attention;
}

bool ModelConfig::gives_kv(int64_t layer) const {
  for (int64_t reader = layers - kv_readers; reader < layers; ++reader) {
    if (kv_source(reader) == layer) return true;
  }
  return false;
}

ModelConfig ModelConfig::with_layers(const std::vector<int64_t>& kept) const {
  ModelConfig few = *this;
  few.layers = std::ssize(kept);
  few.kv_readers = std::ranges::count_if(kept, [&](int64_t layer) { return kv_source(layer) >= 0; });
  few.window.clear();
  few.no_rope.clear();
  few.experts.layers.clear();
  few.delta_net.layers.clear();
  few.mamba2.layers.clear();
  few.gated_conv.layers.clear();
  few.no_mixer.clear();
  for (const int64_t layer : kept) {
    few.window.push_back(window[static_cast<size_t>(layer)]);
    if (!no_rope.empty()) few.no_rope.push_back(no_rope[static_cast<size_t>(layer)]);
    if (!delta_net.layers.empty()) few.delta_net.layers.push_back(delta_net.in_layer(layer));
    if (!mamba2.layers.empty()) few.mamba2.layers.push_back(mamba2.in_layer(layer));
    if (!gated_conv.layers.empty()) few.gated_conv.layers.push_back(gated_conv.in_layer(layer));
    if (!no_mixer.empty()) few.no_mixer.push_back(no_mixer[static_cast<size_t>(layer)]);
    if (experts.count > 0) few.experts.layers.push_back(experts.in_layer(layer));
  }
  return few;
}

}  // namespace megatrain
