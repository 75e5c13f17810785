// Writes RUN/grads-STEP.safetensors: every trained tensor's gradient as the optimizer sees it before clipping, in fp32,
// as updates go by.
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

  // Called once for every record that is trained, on the update lane.
  void record(int64_t index, const HostGradient& gradient);
  void finish() { writer_->finish(); }

 private:
  const std::vector<LayerRecord>& records_;
  std::unique_ptr<SafetensorsWriter> writer_;
  std::vector<float> scratch_;
};

}  // namespace megatrain
