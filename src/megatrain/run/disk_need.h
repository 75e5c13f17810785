// What a run will write, and whether the disk has room for it: checked before anything is tokenised or trained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/config/config.h"
#include "megatrain/io/free_space.h"
#include "megatrain/model/config.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// The run's last step gets a checkpoint, whatever checkpoint.every divides: it ends an epoch that is cut short, or the
// conventions are of a trainer which does so.
bool saves_last_step(const TrainConfig& config);

struct DiskPart {
  std::string what;       // "3 checkpoints of 91.4 GiB (checkpoint.keep is 2, and one is being written)"
  std::string directory;  // where it goes; need not be there yet
  int64_t bytes = 0;
  std::string remedy;  // "lower checkpoint.keep"
};

struct DiskNeed {
  std::vector<DiskPart> parts;       // none of 0 bytes
  int64_t checkpoint_bytes = 0;      // of one
  bool checkpoints_planned = false;  // false: only a signal makes one, which is not among the parts
  int64_t bytes() const;
};

// What goes to run_dir, and `scratch_bytes` to memory.nvme_path. `stored` as make_model() takes it. Without `steps`
// (the data is not read yet) checkpoints and dumps are not counted. A resumed run needs no room for what is there
// already.
DiskNeed disk_need(const TrainConfig& config, const ModelConfig& model, const TensorTypes& stored,
                   std::optional<int64_t> steps, int64_t scratch_bytes = 0);

// The part that tokenising so many bytes of files adds: at least half of them, as a token of 4 bytes stands for 4 bytes
// of most texts, and for no more than 8.
DiskPart token_cache_part(const TrainConfig& config, int64_t source_bytes);

using FreeSpaceOf = std::function<std::optional<FreeSpace>(const std::string& path)>;

// A sentence for the first file system that has no room for its parts; empty: all have.
std::string disk_problem(const DiskNeed& need, const FreeSpaceOf& free_of = free_space);

// Throws Error(cannot_fit) with disk_problem().
void check_disk_need(const DiskNeed& need, const FreeSpaceOf& free_of = free_space);

// Whether `run_dir` has room for a checkpoint that only a signal asks for, beside all else.
bool stop_fits(const DiskNeed& need, const std::string& run_dir, const FreeSpaceOf& free_of = free_space);

// "disk: 289 GiB in runs/x: 3 checkpoints …, the model 14.2 GiB; 1.2 TiB free": a line each file system and line end.
// Nothing is said of free space when `free_of` is empty.
std::string describe(const DiskNeed& need, const FreeSpaceOf& free_of = free_space);

}  // namespace megatrain
