#include "megatrain/engine/disk_moments.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"

namespace megatrain {

static_assert(kDiskAlignment == kDiskBlock, "the plan lays planes out on the disk's blocks");

DiskMoments::DiskMoments(const Workload& workload, const Plan& plan, const DiskSettings& settings)
    : workload_(workload), plan_(plan), inventory_(workload, plan), directory_(settings.place.directory) {
  const int64_t bytes = inventory_.need().disk_bytes();
  if (bytes == 0) return;
  if (directory_.empty())
    fail_config("the plan keeps moments on disk, and no directory is given for them; set memory.nvme_path");
  file_ = std::make_unique<ScratchFile>(settings.place, bytes);
  reads_ = make_disk_queue(*file_, settings.queue);
  writes_ = make_disk_queue(*file_, settings.queue);
}

int64_t DiskMoments::offset(int64_t record) const { return inventory_.offset({ResourceKind::disk_moments, record}); }
int64_t DiskMoments::bytes(int64_t record) const { return inventory_.bytes({ResourceKind::disk_moments, record}); }

std::vector<DiskPlanes> DiskMoments::planes() const {
  std::vector<DiskPlanes> planes(static_cast<size_t>(workload_.record_count()));
  for (int64_t record = 0; record < workload_.record_count(); ++record) {
    if (!plan_.moments_on_disk(record)) continue;
    const int64_t m = offset(record);
    planes[static_cast<size_t>(record)] = {.file = file_.get(), .m = m, .v = m + workload_.disk_moment_bytes(record)};
  }
  return planes;
}

void DiskMoments::read(int64_t record, std::byte* slab) { reads_->read(offset(record), slab, bytes(record)); }
void DiskMoments::write(int64_t record, const std::byte* slab) { writes_->write(offset(record), slab, bytes(record)); }

std::string DiskMoments::description() const {
  if (!file_) return "";
  return fmt::format("{} of moments live in {}, by {}{}", format_bytes(file_->bytes()), directory_, reads_->name(),
                     file_->direct() ? "" : ", through the page cache: the file system there has no O_DIRECT");
}

}  // namespace megatrain
