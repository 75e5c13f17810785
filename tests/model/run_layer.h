// Runs a layer forward and backward once on the CPU, in fp32. Weights, input and gradient are random; the tokens form
// two documents.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "megatrain/base/rng.h"
#include "megatrain/device/device.h"
#include "megatrain/model/layers/layer.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

inline constexpr int64_t kLayerTokens = 40;
inline const std::vector<int32_t> kLayerDocuments = {0, 27, kLayerTokens};

struct LayerRun {
  std::vector<float> x, grad_y;  // given
  // Given, for each record: its weights, and the initial contents of its gradients.
  std::vector<std::vector<float>> weights, first;
  std::vector<float> y, grad_x;
  std::vector<std::vector<float>> grads;  // for each record
};

inline std::vector<float> drawn_floats(uint64_t purpose, int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * random_normal_pair(7, purpose, i)[0];
  return values;
}

// Positions of the tokens within their documents.
inline std::vector<int32_t> layer_positions() {
  std::vector<int32_t> positions;
  for (size_t d = 0; d + 1 < kLayerDocuments.size(); ++d) {
    for (int32_t p = 0; p < kLayerDocuments[d + 1] - kLayerDocuments[d]; ++p) positions.push_back(p);
  }
  return positions;
}

// The largest number of levels in any phase of the layer. At levels that a phase lacks, it keeps everything.
inline int32_t most_levels(const Layer& layer) {
  size_t most = 0;
  for (const auto& phase : layer.phases) most = std::max(most, phase->keep_levels().size());
  return static_cast<int32_t>(most);
}

// All phases have the same width. `tables` as from Model::make_tables().
inline LayerRun run_layer(const Layer& layer, const std::vector<float>& tables, Keep wanted = Keep::nothing) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Ops> ops = make_cpu_ops({.threads = 1});
  const std::unique_ptr<Stream> stream = device->make_stream("compute");
  const int64_t width = layer.phases.front()->in_width();
  LayerRun run{.x = drawn_floats(1, kLayerTokens * width, 1), .grad_y = drawn_floats(2, kLayerTokens * width, 1)};
  for (const LayerLayout& record : layer.records) {
    run.weights.push_back(drawn_floats(10 + run.weights.size(), record.elements, 0.1f));
    run.first.push_back(drawn_floats(20 + run.weights.size(), record.state_elements, 1));
  }
  run.grads = run.first;
  run.grad_x = run.grad_y;
  const std::vector<int32_t> positions = layer_positions();
  const MicroBatchView micro_batch{.tokens = kLayerTokens,
                                   .positions = positions.data(),
                                   .documents = {.begin = kLayerDocuments.data(),
                                                 .host_begin = kLayerDocuments.data(),
                                                 .count = 2,
                                                 .longest = 27,
                                                 .uniform = false}};
  const auto rows = [&](std::vector<float>& values) { return matrix(values.data(), DType::f32, kLayerTokens, width); };
  std::vector<std::vector<float>> activations = {run.x};  // the input of each phase, then y
  std::vector<Keep> keeps;
  std::vector<std::vector<std::byte>> kept;
  int64_t workspace = 0;
  for (const auto& phase : layer.phases) {
    activations.push_back(run.x);
    const std::vector<KeepLevel> levels = phase->keep_levels();
    keeps.push_back(std::min(wanted, Keep{static_cast<int32_t>(levels.size()) - 1}));
    kept.emplace_back(static_cast<size_t>(levels[keep_index(keeps.back())].bytes));
    workspace = std::max(workspace, phase->workspace_bytes());
  }
  std::vector<std::byte> work(static_cast<size_t>(workspace));
  const auto slabs = [&](const Phase& phase, std::vector<std::byte*>& weights, std::vector<float*>& grads) {
    for (const int64_t record : phase.records()) {
      weights.push_back(reinterpret_cast<std::byte*>(run.weights[static_cast<size_t>(record)].data()));
      grads.push_back(run.grads[static_cast<size_t>(record)].data());
    }
  };
  for (size_t p = 0; p < layer.phases.size(); ++p) {
    std::vector<std::byte*> weights;
    std::vector<float*> grads;
    slabs(*layer.phases[p], weights, grads);
    layer.phases[p]->forward(*ops, *stream,
                             {.weights = weights,
                              .x = rows(activations[p]),
                              .y = rows(activations[p + 1]),
                              .micro_batch = micro_batch,
                              .tables = tables.data(),
                              .workspace = work.data(),
                              .keep = keeps[p],
                              .kept = kept[p].data()});
  }
  for (size_t p = layer.phases.size(); p-- > 0;) {
    std::vector<std::byte*> weights;
    std::vector<float*> grads;
    slabs(*layer.phases[p], weights, grads);
    layer.phases[p]->backward(*ops, *stream,
                              {.weights = weights,
                               .x = rows(activations[p]),
                               .grad_y = rows(run.grad_x),
                               .grad_x = rows(run.grad_x),
                               .weight_grads = grads,
                               .accumulate = true,
                               .micro_batch = micro_batch,
                               .tables = tables.data(),
                               .workspace = work.data(),
                               .keep = keeps[p],
                               .kept = kept[p].data()});
  }
  stream->synchronize();
  run.y = activations.back();
  return run;
}

}  // namespace megatrain
