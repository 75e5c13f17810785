// Everything of a run that lives on disk: weights, moments, waiting gradients and activations. Owns the scratch file,
// its layout, and one queue per direction. Frozen weights may stay in the model's own files instead, which are only
// read.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "megatrain/io/disk_queue.h"
#include "megatrain/io/file_reader.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/store/record.h"
#include "megatrain/store/weight_source.h"

namespace megatrain {

// How a run may use the machine's disk.
struct DiskSettings {
  ScratchPlace place;
  DiskQueueOptions queue;
  std::string base = {};         // directory of the model, in whose files frozen weights may stay
  FileReaderOptions files = {};  // for these
};

class DiskTier {
 public:
  // Allocates the file, unless the plan has nothing on disk. Throws as ScratchFile does. `base`: reads the weights that
  // the plan leaves in files; nullptr: there are none.
  DiskTier(const Workload& workload, const Plan& plan, const DiskSettings& settings,
           std::unique_ptr<WeightSource> base = nullptr);

  std::vector<DiskPlanes> planes() const;  // indexed by record

  // Copies a disk resource, in whole disk blocks, between the file and a slab, or weights from the model's files. One
  // thread may read while another writes, as long as the resources differ. After a failed write, read() throws the
  // error of that write. `next`: the resource that the next call reads; nullptr: not known.
  void read(const Resource& resource, std::byte* slab, const Resource* next = nullptr);
  void write(const Resource& resource, const std::byte* slab);
  int64_t bytes(const Resource& resource) const { return inventory_.bytes(resource); }  // that read() and write() move

  // For a log: how many bytes, where and how. Empty if nothing lives on disk.
  std::string description() const;

 private:
  int64_t offset(const Resource& resource) const;  // within the file

  Workload workload_;
  Plan plan_;
  Inventory inventory_;
  std::unique_ptr<WeightSource> base_;
  std::string directory_;
  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<DiskQueue> reads_, writes_;
  std::mutex mutex_;
  std::exception_ptr failed_write_;  // guarded by the mutex; the first one
};

}  // namespace megatrain
