// Writes RUN/grads-STEP.safetensors: the gradient of every trained tensor in fp32, as the optimizer sees it before
// clipping. Gradients are written as the updates run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/optim/updater.h"
#include "megatrain/store/record.h"

namespace megatrain {

class GradientDump {
 public:
  GradientDump(const std::string& path, int64_t step, const std::vector<LayerRecord>& records);

  // Called once for every trained record, on the update lane.
  void record(int64_t index, const HostGradient& gradient);
  void finish() { writer_->finish(); }

 private:
  const std::vector<LayerRecord>& records_;
  std::unique_ptr<SafetensorsWriter> writer_;
  std::vector<float> scratch_;
};

}  // namespace megatrain
