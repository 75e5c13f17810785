// The moments that live on disk: the file, where each record's lie in it, and a queue for each way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/io/disk_queue.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/store/record.h"

namespace megatrain {

// The disk of a machine, as a run may use it.
struct DiskSettings {
  ScratchPlace place;
  DiskQueueOptions queue;
};

class DiskMoments {
 public:
  // Allocates the file, unless the plan has nothing on disk. Throws as ScratchFile does.
  DiskMoments(const Workload& workload, const Plan& plan, const DiskSettings& settings);

  std::vector<DiskPlanes> planes() const;  // by record

  // Moves a record's m and v, a block-aligned span each, between the file and a slab. The two may run at once, on a
  // thread each, for different records.
  void read(int64_t record, std::byte* slab);
  void write(int64_t record, const std::byte* slab);
  int64_t bytes(int64_t record) const;  // that each of them moves

  // One line for a log: how many bytes, where and how. Empty when nothing lives on disk.
  std::string description() const;

 private:
  int64_t offset(int64_t record) const;

  Workload workload_;
  Plan plan_;
  Inventory inventory_;
  std::string directory_;
  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<DiskQueue> reads_, writes_;
};

}  // namespace megatrain
