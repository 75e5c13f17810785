#include "megatrain/data/prepared_set.h"

#include <filesystem>
#include <limits>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/work_progress.h"
#include "megatrain/data/file_fingerprint.h"
#include "megatrain/io/file.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

std::string checksum_of(const std::string& path, int threads) {
  WorkProgress progress("checking " + path, File::open_to_read(path).bytes());
  return file_fingerprint(path, threads, {.most = std::numeric_limits<int64_t>::max(), .read = [&](int64_t bytes) {
                                            progress.add(bytes);
                                          }});
}

void check_file(const char* key, const std::string& path, int threads) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return;  // opening it reports the problem
  const auto file = find_prepared_file(path);
  if (!file || file->manifest.checksums.at(file->name) == checksum_of(path, threads)) return;
  fail_input(
      fmt::format("{} {} is damaged: its checksum differs from that in {} next to it; prepare the data again, restore "
                  "the file from a copy, or, if you changed it yourself, remove {}",
                  key, path, kPreparedManifest, kPreparedManifest));
}

}  // namespace

void finish_prepared_set(const std::string& folder, PreparedManifest manifest) {
  for (const std::string& name : {manifest.tokens, manifest.labels, manifest.documents})
    manifest.checksums[name] = checksum_of(folder + "/" + name, 0);
  write_prepared_manifest(folder, manifest);
}

void check_prepared_files(const TrainConfig& config) {
  const TrainConfig::Data& data = config.data;
  const int threads = static_cast<int>(config.threads);
  check_file("data.tokens", data.tokens, threads);
  check_file("data.documents", data.documents, threads);
  check_file("data.labels", data.labels, threads);
  check_file("data.order", data.order, threads);
}

}  // namespace megatrain
