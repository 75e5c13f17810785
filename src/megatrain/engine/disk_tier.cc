#include "megatrain/engine/disk_tier.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"

namespace megatrain {

static_assert(kDiskAlignment == kDiskBlock, "the plan lays planes out on the disk's blocks");

namespace {

constexpr const char* kNotDirect = ", through the page cache: the file system there has no O_DIRECT";

}  // namespace

DiskTier::DiskTier(const Workload& workload, const Plan& plan, const DiskSettings& settings,
                   std::unique_ptr<WeightSource> base)
    : workload_(workload),
      plan_(plan),
      inventory_(workload, plan),
      base_(std::move(base)),
      directory_(settings.place.directory) {
  ensure(base_ || plan_.with_weights_in_files() == 0, "weights that stay in files have a source");
  if (inventory_.need().disk_bytes() == 0) return;
  if (directory_.empty())
    fail_config("the plan keeps state on disk, but no directory is given for it; set memory.nvme_path");
  file_ = std::make_unique<ScratchFile>(settings.place, inventory_.disk_ranges());
  reads_ = make_disk_queue(*file_, settings.queue);
  writes_ = make_disk_queue(*file_, settings.queue);
}

int64_t DiskTier::offset(const Resource& resource) const {
  int64_t first = 0;  // of its kind: kinds are stored one after the other
  for (size_t kind = 0; kind < static_cast<size_t>(resource.kind); ++kind) first += inventory_.need().disk[kind];
  return first + inventory_.offset(resource);
}

std::vector<DiskPlanes> DiskTier::planes() const {
  std::vector<DiskPlanes> planes(static_cast<size_t>(workload_.record_count()));
  for (int64_t record = 0; record < workload_.record_count(); ++record) {
    DiskPlanes& at = planes[static_cast<size_t>(record)];
    at.file = file_.get();
    if (plan_.weights_in_files(record)) {
      at.source = base_.get();
      at.source_record = record;
    }
    for (const DiskPlane& plane : disk_planes(workload_, plan_, record)) {
      const int64_t begin = offset({plane.kind, record});
      if (plane.kind == ResourceKind::disk_weights) at.weights = begin;
      if (plane.kind == ResourceKind::disk_low_bits) at.low = begin;
      if (plane.kind != ResourceKind::disk_moments) continue;
      at.m = begin;
      at.v = begin + workload_.disk_moment_bytes(record);
    }
  }
  return planes;
}

void DiskTier::read(const Resource& resource, std::byte* slab, const Resource* next) {
  if (resource.kind == ResourceKind::file_weights)
    return base_->read_whole(resource.a, slab, next && next->kind == ResourceKind::file_weights ? next->a : -1);
  try {
    reads_->read(offset(resource), slab, bytes(resource));
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    if (failed_write_) std::rethrow_exception(failed_write_);
    throw;
  }
}

void DiskTier::write(const Resource& resource, const std::byte* slab) {
  try {
    writes_->write(offset(resource), slab, bytes(resource));
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    if (!failed_write_) failed_write_ = std::current_exception();
    throw;
  }
}

std::string DiskTier::description() const {
  std::string base;
  if (const int64_t bytes = inventory_.need().file_bytes(); bytes > 0)
    base = fmt::format("{} of frozen weights stay in the model's files and are read from there{}", format_bytes(bytes),
                       base_->direct() ? "" : kNotDirect);
  if (!file_) return base;
  return base + (base.empty() ? "" : "; ") +
         fmt::format("{} of {} are in {}, accessed with {}{}", format_bytes(file_->bytes()),
                     disk_contents(inventory_.need()), directory_, reads_->name(), file_->direct() ? "" : kNotDirect);
}

}  // namespace megatrain
