// Models, steps and machines by name, for tests of what fits where.
#pragma once

#include "megatrain/machine/machines.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/presets.h"
#include "megatrain/train/planned_machine.h"

namespace megatrain {

inline ModelConfig preset(const std::string& name) { return parse_model_config(*preset_config(name), name); }

inline TrainConfig step_of(int64_t batch, int64_t micro_batch, int64_t seq_len = 1024) {
  TrainConfig config;
  config.batch = batch;
  config.micro_batch = micro_batch;
  config.seq_len = seq_len;
  return config;
}

inline PlannedMachine machine_with(const std::string& name, int64_t ram_bytes, int64_t hbm_bytes = 0) {
  MachineProfile machine = named_machine(name);
  machine.host_bytes = ram_bytes;
  if (hbm_bytes > 0) machine.hbm_bytes = hbm_bytes;
  return machine_from_profile(machine);
}

}  // namespace megatrain
