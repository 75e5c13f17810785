// The machine that `megatrain plan` plans for, from its own options.
#pragma once

#include "megatrain/config/arguments.h"
#include "megatrain/train/setup.h"

namespace megatrain {

struct PlannedSite {
  Machine machine;  // none for a named one
  Site site;
};

// The machine that --machine names, or this one, with the memory that --ram and the disk that --disk say. Throws
// Error(bad_config); of this machine also where memory.nvme_path is no directory that state can live in.
PlannedSite planned_site(const Arguments& arguments, const TrainConfig& config);

}  // namespace megatrain
