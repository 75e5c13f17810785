#include "megatrain/run/companion_record.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/replace.h"
#include "megatrain/io/sealed_json.h"
#include "megatrain/io/xxh3.h"
#include "megatrain/model/files/kept_tensors.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

std::string record_path(const std::string& run_dir) { return run_dir + "/companions.json"; }

std::string checksum_of(const std::string& path) {
  constexpr int64_t kPiece = 4 * kMiB;
  const File file = File::open_to_read(path);
  std::vector<std::byte> piece(static_cast<size_t>(kPiece));
  Xxh3 sum;
  for (int64_t at = 0, bytes = file.bytes(); at < bytes; at += kPiece) {
    const int64_t count = std::min(kPiece, bytes - at);
    file.read_at(at, piece.data(), count);
    sum.update(piece.data(), static_cast<size_t>(count));
  }
  return sum.digest();
}

// Describes the damage of one file. `wrote` is its recorded checksum; empty if there is no record.
std::string damage_of(const std::string& path, const std::string& wrote) {
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  if (!fs::exists(status)) return path + " is gone";
  if (!fs::is_regular_file(status))
    return fmt::format("{} is {}, expected a file", path,
                       fs::is_directory(status) ? "a folder" : "a pipe, a socket or a device");
  if (wrote.empty() || checksum_of(path) == wrote) return "";
  return fmt::format("{} is damaged: it is not the file that the run wrote", path);
}

using Checksums = std::map<std::string, std::string>;  // by file name

// Returns nothing when the record is damaged.
std::optional<Checksums> read_record(const std::string& path) {
  nlohmann::json record;
  try {
    record = read_json_file(path);
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
  }
  if (!seal_holds(record) || !record.contains("files") || !record.at("files").is_object()) return std::nullopt;
  return record.at("files").get<Checksums>();
}

std::string first_damage(const std::string& folder, const Checksums& checksums) {
  for (const auto& [name, checksum] : checksums) {
    if (std::string damage = damage_of(folder + "/" + name, checksum); !damage.empty()) return damage;
  }
  return "";
}

}  // namespace

std::string companions_of(const std::string& run_dir) { return run_dir + "/companions"; }

void write_companion_record(const std::string& run_dir, const std::vector<std::string>& names) {
  nlohmann::json files = {{"config.json", checksum_of(companions_of(run_dir) + "/config.json")}};
  for (const std::string& name : names) files[name] = checksum_of(companions_of(run_dir) + "/" + name);
  write_text_file(record_path(run_dir), json_text(sealed({{"files", files}}), 1) + "\n");
}

bool has_companion_record(const std::string& run_dir) {
  std::error_code none;
  return fs::exists(fs::symlink_status(record_path(run_dir), none));
}

bool has_recorded_companions(const std::string& run_dir) {
  if (!can_read(record_path(run_dir))) return false;
  const std::optional<Checksums> checksums = read_record(record_path(run_dir));
  std::error_code none;
  return checksums && std::all_of(checksums->begin(), checksums->end(), [&](const auto& file) {
           return fs::is_regular_file(companions_of(run_dir) + "/" + file.first, none);
         });
}

void remove_companion_record(const std::string& run_dir) {
  std::error_code none;
  fs::remove(record_path(run_dir), none);
}

std::string companion_damage(const std::string& run_dir) {
  const std::string folder = companions_of(run_dir);
  std::error_code none;
  const fs::file_status status = fs::status(folder, none);
  if (!fs::exists(status)) return folder + " is gone";
  if (!fs::is_directory(status)) return folder + " is a file, expected the folder of the run's tokenizer files";
  const std::string path = record_path(run_dir);
  if (!can_read(path)) return damage_of(folder + "/config.json", "");
  const std::optional<Checksums> checksums = read_record(path);
  if (!checksums) return fmt::format("{} is damaged: its checksum does not match", path);
  return first_damage(folder, *checksums);
}

std::string model_companion_damage(const std::string& run_dir, const std::string& model) {
  const std::string path = record_path(run_dir);
  if (!can_read(path)) return "";
  std::optional<Checksums> checksums = read_record(path);
  if (!checksums) return "";
  checksums->erase("config.json");  // a model's config.json names the dtype of its own weights, so it may differ
  checksums->erase(kKeptFile);      // a model has these tensors among its own
  return first_damage(model, *checksums);
}

}  // namespace megatrain
