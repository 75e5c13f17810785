#include "megatrain/text/dataset/sample_store.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json_file.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxBadBytes = kGiB;

[[noreturn]] void fail_store(const std::string& directory, const std::string& what) {
  fail_io(
      fmt::format("{} is not a store of samples as it was written: {}; remove this directory, and it is made again.",
                  directory, what));
}

}  // namespace

std::string sentence_of(const BadSample& bad) {
  return fmt::format("{}:{}: {}", bad.place.file, bad.place.line, bad.what);
}

SampleStore::SampleStore(const std::string& directory, std::vector<std::string> files)
    : directory_(directory),
      files_(std::move(files)),
      tokens_file_(directory + "/tokens.bin"),
      samples_file_(directory + "/samples.bin") {
  try {
    const nlohmann::json json = read_json_file(directory + "/store.json");
    fingerprint_ = json.at("fingerprint").get<std::string>();
    samples_ = json.at("samples").get<int64_t>();
    tokens_ = json.at("tokens").get<int64_t>();
    trained_tokens_ = json.at("trained_tokens").get<int64_t>();
    endless_ = json.at("endless").get<int64_t>();
    const std::string text = read_text_file(directory + "/bad.jsonl", kMaxBadBytes);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const nlohmann::json bad = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                       text.begin() + static_cast<std::ptrdiff_t>(end));
      bad_.push_back({.place = {.file = files_.at(bad.at("file").get<size_t>()), .line = bad.at("line").get<int64_t>()},
                      .what = bad.at("what").get<std::string>()});
      begin = end + 1;
    }
    if (json.at("bad").get<size_t>() != bad_.size()) fail_store(directory, "bad.jsonl has another count of lines");
  } catch (const nlohmann::json::exception& error) {
    fail_store(directory, error.what());
  } catch (const std::out_of_range&) {
    fail_store(directory, "it tells of a file that the dataset does not have");
  }
  if (tokens_file_.bytes() != tokens_ * static_cast<int64_t>(sizeof(uint32_t)) ||
      samples_file_.bytes() != samples_ * static_cast<int64_t>(sizeof(Record))) {
    fail_store(directory, "tokens.bin or samples.bin has another size");
  }
  if (samples_ > 0 && record(samples_ - 1).end != tokens_) fail_store(directory, "the last sample ends elsewhere");
}

const SampleStore::Record& SampleStore::record(int64_t sample) const {
  return reinterpret_cast<const Record*>(samples_file_.data())[sample];
}

std::span<const uint32_t> SampleStore::entries(int64_t sample) const {
  const auto* const entries = reinterpret_cast<const uint32_t*>(tokens_file_.data());
  return {entries + begin(sample), static_cast<size_t>(length(sample))};
}

SamplePlace SampleStore::place(int64_t sample) const {
  const Record& found = record(sample);
  return {.file = files_.at(static_cast<size_t>(found.file)), .line = found.line};
}

}  // namespace megatrain
