// Replaces queue.cc in a build without liburing.
#include "megatrain/io/disk_queue.h"

namespace megatrain {

std::unique_ptr<DiskQueue> make_uring_queue(ScratchFile&, const DiskQueueOptions&, std::string* why) {
  *why = "this build does not include it; install liburing-dev and build again";
  return nullptr;
}

}  // namespace megatrain
