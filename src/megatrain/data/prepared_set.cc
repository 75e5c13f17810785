#include "megatrain/data/prepared_set.h"

#include <filesystem>
#include <limits>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/work_progress.h"
#include "megatrain/data/file_fingerprint.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/sealed_json.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string checksum_of(const std::string& path, int threads) {
  WorkProgress progress("checking " + path, File::open_to_read(path).bytes());
  return file_fingerprint(path, threads, {.most = std::numeric_limits<int64_t>::max(), .read = [&](int64_t bytes) {
                                            progress.add(bytes);
                                          }});
}

// What the manifest beside the file has of it; null where it has nothing.
json entry_of(const fs::path& path) {
  const std::string manifest = (path.parent_path() / kPreparedManifest).string();
  std::error_code none;
  if (!fs::exists(manifest, none)) return nullptr;
  const json document = read_json_file(manifest);
  if (!seal_holds(document) || !document.contains("files") || !document.at("files").is_object())
    fail_input(fmt::format(
        "{} is damaged: it does not have the checksum that it names; prepare the data again, or remove it to "
        "use the files beside it unchecked",
        manifest));
  const json& files = document.at("files");
  const std::string name = path.filename().string();
  return files.contains(name) ? files.at(name) : json();
}

void check_file(const char* key, const std::string& path, int threads) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return;  // opening it says what is wrong
  const json entry = entry_of(path);
  if (!entry.is_string() || entry == checksum_of(path, threads)) return;
  fail_input(
      fmt::format("{} {} is damaged: its checksum is not that in the {} beside it; prepare the data again, bring the "
                  "file back from a copy, or remove {} to use a file that you changed yourself",
                  key, path, kPreparedManifest, kPreparedManifest));
}

}  // namespace

void write_prepared_manifest(const std::string& directory, const std::vector<std::string>& names) {
  json files = json::object();
  for (const std::string& name : names) files[name] = checksum_of(directory + "/" + name, 0);
  write_text_file(directory + "/" + kPreparedManifest,
                  json_text(sealed({{"version", 1}, {"files", std::move(files)}}), 1) + "\n");
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
