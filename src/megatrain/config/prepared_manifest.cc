#include "megatrain/config/prepared_manifest.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/sealed_json.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kVersion = 2;  // version 1 had only checksums

[[noreturn]] void fail_damaged(const std::string& path) {
  fail_input(
      fmt::format("{} is damaged: its checksum does not match; prepare the data again, or remove it to "
                  "use the files beside it unchecked",
                  path));
}

// Throws the JSON library's exceptions when a member is missing or has the wrong type.
PreparedManifest from_json(const json& document) {
  PreparedManifest manifest{.checksums = document.at("files").get<std::map<std::string, std::string>>()};
  if (document.at("version") == 1) return manifest;
  const json& tokens = document.at("tokens");
  manifest.tokens = tokens.at("file").get<std::string>();
  manifest.dtype = tokens.at("dtype").get<std::string>();
  manifest.labels = document.at("labels").get<std::string>();
  manifest.documents = document.at("documents").get<std::string>();
  manifest.seq_len = document.value("seq_len", int64_t{0});
  return manifest;
}

PreparedManifest read_manifest(const std::string& path) {
  const json document = read_json_file(path);
  if (!seal_holds(document)) fail_damaged(path);
  try {
    if (document.at("version").get<int64_t>() > kVersion)
      fail_input(
          fmt::format("{} is of version {}, expected at most {}; take a newer megatrain, or prepare the data again",
                      path, document.at("version").get<int64_t>(), kVersion));
    return from_json(document);
  } catch (const json::exception&) {
    fail_damaged(path);
  }
}

std::optional<PreparedFile> find_beside(const fs::path& path) {
  const fs::path parent = path.parent_path();
  PreparedFile file{.folder = parent.empty() ? "." : parent.string(), .name = path.filename().string(), .manifest = {}};
  std::error_code none;
  // a dangling link counts as existing, and then fails to be read
  if (!fs::exists(fs::symlink_status(file.manifest_path(), none))) return std::nullopt;
  file.manifest = read_manifest(file.manifest_path());
  if (file.manifest.checksums.count(file.name) == 0) return std::nullopt;
  return file;
}

}  // namespace

std::optional<PreparedFile> find_prepared_file(const std::string& path) {
  if (path.empty()) return std::nullopt;
  if (auto file = find_beside(path)) return file;
  std::error_code error;
  if (!fs::is_symlink(path, error)) return std::nullopt;
  const fs::path target = fs::canonical(path, error);
  return error ? std::nullopt : find_beside(target);
}

std::string manifest_without(const std::string& path) {
  std::error_code none;
  if (path.empty() || find_prepared_file(path)) return "";
  const fs::path manifest = fs::path(path).parent_path() / kPreparedManifest;
  return fs::exists(manifest, none) ? manifest.string() : "";
}

void write_prepared_manifest(const std::string& folder, const PreparedManifest& manifest) {
  const json document = {
      {"version", kVersion},         {"tokens", {{"file", manifest.tokens}, {"dtype", manifest.dtype}}},
      {"labels", manifest.labels},   {"documents", manifest.documents},
      {"seq_len", manifest.seq_len}, {"files", manifest.checksums}};
  write_text_file(folder + "/" + kPreparedManifest, json_text(sealed(document), 1) + "\n");
}

}  // namespace megatrain
