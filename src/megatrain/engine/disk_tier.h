// What lives on disk, weights, moments, waiting gradients and activations: the file, where each lies in it, and a queue
// for each way.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
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

class DiskTier {
 public:
  // Allocates the file, unless the plan has nothing on disk. Throws as ScratchFile does.
  DiskTier(const Workload& workload, const Plan& plan, const DiskSettings& settings);

  std::vector<DiskPlanes> planes() const;  // by record

  // Moves a resource of the disk, whole blocks of the disk, between the file and a slab. The two may run at
  // once, on a thread each, for different resources. What a failed write left is read with the error of that write.
  void read(const Resource& resource, std::byte* slab);
  void write(const Resource& resource, const std::byte* slab);
  int64_t bytes(const Resource& resource) const { return inventory_.bytes(resource); }  // that each of them moves

  // One line for a log: how many bytes, where and how. Empty when nothing lives on disk.
  std::string description() const;

 private:
  int64_t offset(const Resource& resource) const;  // into the file

  Workload workload_;
  Plan plan_;
  Inventory inventory_;
  std::string directory_;
  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<DiskQueue> reads_, writes_;
  std::mutex mutex_;
  std::exception_ptr failed_write_;  // under the mutex: the first
};

}  // namespace megatrain
