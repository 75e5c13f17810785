#include "megatrain/config/prepared_keys.h"

#include <fmt/format.h>

#include <filesystem>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/config/prepared_manifest.h"

namespace megatrain {
namespace {

// A key that names a file of a prepared set, and the member of prepared.json that has the file's name.
struct PreparedKey {
  const char* key;
  std::string TrainConfig::Data::*path;
  std::string PreparedManifest::*name;
  const char* name_in_version_1;
};
constexpr PreparedKey kTokens = {"data.tokens", &TrainConfig::Data::tokens, &PreparedManifest::tokens, "tokens.bin"};
constexpr PreparedKey kBeside[] = {
    {"data.labels", &TrainConfig::Data::labels, &PreparedManifest::labels, "labels.bin"},
    {"data.documents", &TrainConfig::Data::documents, &PreparedManifest::documents, "documents.bin"},
};

std::string name_of(const PreparedKey& key, const PreparedManifest& manifest) {
  return manifest.dtype.empty() ? key.name_in_version_1 : manifest.*key.name;
}

// A file of a prepared set must be given under the key it was written for.
void check_role(const PreparedKey& key, const PreparedFile& file, const GivenKeys& given) {
  const std::string expected = name_of(key, file.manifest);
  if (file.name == expected) return;
  fail_config(fmt::format("{}: {} is {}, but {} says that {} is in {}; give that file", given.origin(key.key), key.key,
                          file.beside(file.name), file.manifest_path(), key.key, file.beside(expected)));
}

void settle_dtype(TrainConfig& config, const PreparedFile& tokens, const GivenKeys& given) {
  const std::string& dtype = tokens.manifest.dtype;
  const bool is_given = given.has_value("data.dtype");
  if (dtype.empty() && !is_given)
    fail_config(fmt::format(
        "{}: data.tokens is {}, and {}, of version 1, does not record the type of its ids; give data.dtype: "
        "uint32, which that version of prepare wrote, or prepare the data again",
        given.origin("data.tokens"), config.data.tokens, tokens.manifest_path()));
  if (!dtype.empty() && is_given && config.data.dtype != dtype)
    fail_config(fmt::format("{}: data.dtype is {}, but {} says that {} holds {}; leave data.dtype out",
                            given.origin("data.dtype"), config.data.dtype, tokens.manifest_path(), config.data.tokens,
                            dtype));
  if (!dtype.empty()) config.data.dtype = dtype;
}

// Another sequence length would cut the sequences that `prepare` packed in the middle of documents.
void settle_seq_len(TrainConfig& config, const PreparedFile& tokens, const GivenKeys& given) {
  const int64_t packed = tokens.manifest.seq_len;
  if (packed == 0) return;
  if (given.has_value("seq_len") && config.seq_len != packed)
    fail_config(
        fmt::format("{}: {} is {}, but {} says that {} holds sequences of {} tokens; give {}, or prepare the "
                    "data again",
                    given.origin("seq_len"), given.names("seq_len"), config.seq_len, tokens.manifest_path(),
                    config.data.tokens, packed, given.names.setting("seq_len", std::to_string(packed))));
  config.seq_len = packed;
}

void settle_beside(const PreparedKey& key, TrainConfig& config, const PreparedFile& tokens, const GivenKeys& given) {
  std::string& path = config.data.*key.path;
  if (!given.has(key.key)) {
    const std::string name = name_of(key, tokens.manifest);
    if (!tokens.manifest.dtype.empty())
      path = tokens.beside(name);
    else if (tokens.manifest.checksums.count(name) != 0)
      log_warn(fmt::format(
          "{} is not used, because {} is of version 1 and {} is not given; give {}: {}, or null to do without it",
          tokens.beside(name), tokens.manifest_path(), key.key, key.key, tokens.beside(name)));
    return;
  }
  const auto file = find_prepared_file(path);
  if (!file) return;  // null, or not a file of a prepared set
  check_role(key, *file, given);
  std::error_code error;
  if (!std::filesystem::equivalent(file->folder, tokens.folder, error))
    fail_config(fmt::format("{}: {} is {}, of another prepared set than data.tokens, which is {}; leave {} out",
                            given.origin(key.key), key.key, path, config.data.tokens, key.key));
}

}  // namespace

void settle_prepared_keys(TrainConfig& config, const GivenKeys& given) {
  const auto tokens = find_prepared_file(config.data.tokens);
  if (!tokens) {
    const std::string manifest = manifest_without(config.data.tokens);
    if (!manifest.empty() && !given.has_value("data.dtype"))
      fail_config(
          fmt::format("{}: data.tokens is {}, which is in a prepared set, but {} does not name it; give the file by "
                      "its original name, or data.dtype if it is your own file",
                      given.origin("data.tokens"), config.data.tokens, manifest));
    if (!manifest.empty())
      log_warn(
          fmt::format("{} is in a prepared set, but {} does not name it: it is read as your own file, without the "
                      "set's labels, documents and seq_len",
                      config.data.tokens, manifest));
    return;
  }
  check_role(kTokens, *tokens, given);
  settle_dtype(config, *tokens, given);
  settle_seq_len(config, *tokens, given);
  for (const PreparedKey& key : kBeside) settle_beside(key, config, *tokens, given);
}

}  // namespace megatrain
