// How much a run will write and whether the disk has room for it. Checked before anything is tokenised or trained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/config/config.h"
#include "megatrain/io/free_space.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// Whether the last step gets a checkpoint even if checkpoint.every does not divide it. It does if there is one per
// epoch, since the last epoch may be cut short, and under the conventions of other trainers, which always save there.
bool saves_last_step(const TrainConfig& config);

struct DiskPart {
  std::string what;       // "3 checkpoints of 91.4 GiB (checkpoint.keep is 2, and one is being written)"
  std::string directory;  // where it goes; need not exist yet
  int64_t bytes = 0;
  std::string remedy;  // "lower checkpoint.keep"
};

struct DiskNeed {
  std::vector<DiskPart> parts;       // without those of 0 bytes
  int64_t checkpoint_bytes = 0;      // of one checkpoint
  bool checkpoints_planned = false;  // false: only a signal saves one, which is not among the parts
  int64_t bytes() const;
};

// What is written to run_dir, and `scratch_bytes` to memory.nvme_path. `stored` is the same as for make_model(). If
// `steps` is missing (the data is not read yet), checkpoints and dumps are not counted. A resumed run needs no room for
// what exists already.
DiskNeed disk_need(const TrainConfig& config, const ModelConfig& model, const TensorTypes& stored,
                   std::optional<int64_t> steps, int64_t scratch_bytes = 0);

// The space that tokenising `source_bytes` of files takes, as a lower bound of half their size. A token is stored in 4
// bytes and stands for about 4 bytes of most texts, and at most for 8.
DiskPart token_cache_part(const TrainConfig& config, int64_t source_bytes);

using FreeSpaceOf = std::function<std::optional<FreeSpace>(const std::string& path)>;

// A sentence about the first file system that lacks room for its parts; empty if all have room.
std::string disk_problem(const DiskNeed& need, const FreeSpaceOf& free_of = free_space);

// Throws Error(cannot_fit) with disk_problem().
void check_disk_need(const DiskNeed& need, const FreeSpaceOf& free_of = free_space);

// Whether `run_dir` also has room for a checkpoint that only a signal asks for.
bool stop_fits(const DiskNeed& need, const std::string& run_dir, const FreeSpaceOf& free_of = free_space);

// "disk: 289 GiB in runs/x: 3 checkpoints …, the model 14.2 GiB; 1.2 TiB free". One line per file system, each ending
// with a newline. Free space is left out when `free_of` is empty.
std::string describe(const DiskNeed& need, const FreeSpaceOf& free_of = free_space);

}  // namespace megatrain
