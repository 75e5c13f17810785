#include "megatrain/engine/disk_tier.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"

namespace megatrain {

static_assert(kDiskAlignment == kDiskBlock, "the plan lays planes out on the disk's blocks");

DiskTier::DiskTier(const Workload& workload, const Plan& plan, const DiskSettings& settings)
    : workload_(workload), plan_(plan), inventory_(workload, plan), directory_(settings.place.directory) {
  const int64_t bytes = inventory_.need().disk_bytes();
  if (bytes == 0) return;
  if (directory_.empty())
    fail_config("the plan keeps state on disk, and no directory is given for it; set memory.nvme_path");
  file_ = std::make_unique<ScratchFile>(settings.place, bytes);
  reads_ = make_disk_queue(*file_, settings.queue);
  writes_ = make_disk_queue(*file_, settings.queue);
}

int64_t DiskTier::offset(const Resource& resource) const {
  const int64_t moments = inventory_.need().disk[static_cast<size_t>(ResourceKind::disk_moments)];  // come first
  return inventory_.offset(resource) + (resource.kind == ResourceKind::disk_moments ? 0 : moments);
}

std::vector<DiskPlanes> DiskTier::planes() const {
  std::vector<DiskPlanes> planes(static_cast<size_t>(workload_.record_count()));
  for (int64_t record = 0; record < workload_.record_count(); ++record) {
    if (!plan_.moments_on_disk(record)) continue;
    const int64_t m = offset({ResourceKind::disk_moments, record});
    planes[static_cast<size_t>(record)] = {.file = file_.get(), .m = m, .v = m + workload_.disk_moment_bytes(record)};
  }
  return planes;
}

void DiskTier::read(const Resource& resource, std::byte* slab) {
  reads_->read(offset(resource), slab, bytes(resource));
}
void DiskTier::write(const Resource& resource, const std::byte* slab) {
  writes_->write(offset(resource), slab, bytes(resource));
}

std::string DiskTier::description() const {
  if (!file_) return "";
  return fmt::format("{} of {} live in {}, by {}{}", format_bytes(file_->bytes()), disk_contents(inventory_.need()),
                     directory_, reads_->name(),
                     file_->direct() ? "" : ", through the page cache: the file system there has no O_DIRECT");
}

}  // namespace megatrain
