// The prepared.json that `prepare --out` writes beside its files: what each file holds, and its checksum.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace megatrain {

inline constexpr const char* kPreparedManifest = "prepared.json";

struct PreparedManifest {
  std::map<std::string, std::string> checksums;  // by the name of a file in the same folder
  // Names of these files, and the type of the ids. All are empty in version 1, which did not record them.
  std::string tokens, dtype, labels, documents;
  int64_t seq_len = 0;  // tokens of each packed sequence; 0: not recorded by an earlier megatrain
};

// A file of a prepared set.
struct PreparedFile {
  std::string folder, name;
  PreparedManifest manifest;

  std::string manifest_path() const { return folder + "/" + kPreparedManifest; }
  std::string beside(const std::string& other) const { return folder + "/" + other; }
};

// The file at `path`, or the target of that link, if a prepared.json beside it names it. Throws Error(bad_input) for a
// prepared.json that is damaged or of a later version.
std::optional<PreparedFile> find_prepared_file(const std::string& path);

// The path of a prepared.json beside the file that does not name it; empty if there is none or it does.
std::string manifest_without(const std::string& path);

void write_prepared_manifest(const std::string& folder, const PreparedManifest& manifest);

}  // namespace megatrain
