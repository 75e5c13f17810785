#include "megatrain/dataset/sample_store.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxBadBytes = kGiB;
// A tokens.bin below this size is compared with its checksum when it is opened.
constexpr int64_t kScanBytes = kGiB;

// A missing file means damage, not a mistyped path.
std::string part_of(const std::string& directory, const char* name) {
  std::string path = fmt::format("{}/{}", directory, name);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw DamagedStore(directory, fmt::format("it has no {}", name));
  return path;
}

bool has_checksum(const MappedFile& file, const std::string& checksum) {
  return xxh3_128(file.data(), static_cast<size_t>(file.bytes())) == checksum;
}

}  // namespace

DamagedStore::DamagedStore(const std::string& directory, const std::string& what)
    : Error(ExitCode::io,
            fmt::format("the tokenised samples in {} are damaged: {}; remove this directory, and it is rebuilt.",
                        directory, what)),
      what_(what) {}

std::string sentence_of(const BadSample& bad) {
  return fmt::format("{}:{}: {}", bad.place.file, bad.place.line, bad.what);
}

SampleStore::SampleStore(const std::string& directory, std::vector<std::string> files)
    : directory_(directory),
      files_(std::move(files)),
      tokens_file_(part_of(directory, "tokens.bin")),
      samples_file_(part_of(directory, "samples.bin")) {
  try {
    read_description();
  } catch (const nlohmann::json::exception& error) {
    fail_damaged(error.what());
  } catch (const DamagedStore&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    fail_damaged(error.what());
  }
  check_samples();
}

void SampleStore::read_description() {
  const nlohmann::json json = read_json_file(part_of(directory_, "store.json"));
  fingerprint_ = json.at("fingerprint").get<std::string>();
  samples_ = json.at("samples").get<int64_t>();
  tokens_ = json.at("tokens").get<int64_t>();
  trained_tokens_ = json.at("trained_tokens").get<int64_t>();
  notes_ = {.endless = json.at("endless").get<int64_t>(),
            .guessed = json.at("guessed").get<int64_t>(),
            .unreasoned = json.at("unreasoned").get<int64_t>()};
  tokens_checksum_ = json.at("tokens_xxh3").get<std::string>();
  samples_checksum_ = json.at("samples_xxh3").get<std::string>();
  const std::string text = read_text_file(part_of(directory_, "bad.jsonl"), kMaxBadBytes);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const nlohmann::json bad = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                     text.begin() + static_cast<std::ptrdiff_t>(end));
    const auto file = bad.at("file").get<size_t>();
    if (file >= files_.size()) fail_damaged("it refers to a file that the dataset does not have");
    bad_.push_back({.place = {.file = files_[file], .line = bad.at("line").get<int64_t>()},
                    .what = bad.at("what").get<std::string>()});
    begin = end + 1;
  }
  if (json.at("bad").get<size_t>() != bad_.size()) fail_damaged("bad.jsonl has the wrong number of lines");
}

void SampleStore::check_samples() const {
  const auto holds = [](const MappedFile& file, int64_t count, size_t size) {
    const auto bytes = static_cast<int64_t>(size);
    return file.bytes() % bytes == 0 && file.bytes() / bytes == count;
  };
  if (!holds(tokens_file_, tokens_, sizeof(uint32_t)) || !holds(samples_file_, samples_, sizeof(Record))) {
    fail_damaged("tokens.bin or samples.bin has the wrong size");
  }
  if (!has_checksum(samples_file_, samples_checksum_)) fail_damaged("samples.bin has the wrong checksum");
  if (tokens_file_.bytes() < kScanBytes && !has_checksum(tokens_file_, tokens_checksum_)) {
    fail_damaged("tokens.bin has the wrong checksum");
  }
  int64_t end = 0;
  for (int64_t sample = 0; sample < samples_; ++sample) {
    end += std::ssize(entries(sample));
    place(sample);
  }
  if (end != tokens_) fail_damaged("the last sample does not end at the last token");
}

const SampleStore::Record& SampleStore::record(int64_t sample) const {
  return reinterpret_cast<const Record*>(samples_file_.data())[sample];
}

std::span<const uint32_t> SampleStore::entries(int64_t sample) const {
  const int64_t begin = sample == 0 ? 0 : record(sample - 1).end, end = record(sample).end;
  if (begin < 0 || begin > end || end > tokens_) {
    fail_damaged(fmt::format("sample {} is tokens {} to {} of {}", sample, begin, end, tokens_));
  }
  const auto* const entries = reinterpret_cast<const uint32_t*>(tokens_file_.data());
  return {entries + begin, static_cast<size_t>(end - begin)};
}

SamplePlace SampleStore::place(int64_t sample) const {
  const Record& found = record(sample);
  if (found.file < 0 || found.file >= std::ssize(files_)) {
    fail_damaged(fmt::format("sample {} is of file {} of {}", sample, found.file, files_.size()));
  }
  return {.file = files_[static_cast<size_t>(found.file)], .line = found.line};
}

void SampleStore::check_whole() const {
  tokens_file_.check_whole();
  samples_file_.check_whole();
}

void SampleStore::fail_damaged(const std::string& what) const { throw DamagedStore(directory_, what); }

}  // namespace megatrain
