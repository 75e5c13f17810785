#include "megatrain/dataset/sample_writer.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxJournalBytes = kGiB;
constexpr int64_t kHashBytes = 4 * kMiB;  // read at a time

static_assert(std::endian::native == std::endian::little, "stores are little-endian");
static_assert(sizeof(SampleStore::Record) == 24);

// The checksum of a journal line's numbers, which the line ends with.
std::string checksum_of(const nlohmann::json& numbers) {
  const std::string text = numbers.dump();
  return xxh3_128(text.data(), text.size());
}

bool is_journal_line(nlohmann::json line) {
  if (!line.is_array() || line.size() != 14 || !line.back().is_string()) return false;
  const std::string checksum = line.back().get<std::string>();
  line.erase(line.size() - 1);
  return checksum_of(line) == checksum;
}

std::string checksum_of(const File& file, int64_t bytes) {
  Xxh3 hash;
  std::vector<char> buffer(static_cast<size_t>(std::clamp<int64_t>(bytes, 1, kHashBytes)));
  for (int64_t at = 0; at < bytes; at += std::ssize(buffer)) {
    const int64_t count = std::min<int64_t>(bytes - at, std::ssize(buffer));
    file.read_at(at, buffer.data(), count);
    hash.update(buffer.data(), static_cast<size_t>(count));
  }
  return hash.digest();
}

}  // namespace

SampleWriter::SampleWriter(const std::string& directory)
    : directory_(directory),
      tokens_(File::open_to_write(directory + "/tokens.bin")),
      samples_(File::open_to_write(directory + "/samples.bin")),
      bad_file_(File::open_to_write(directory + "/bad.jsonl")),
      journal_(File::open_to_write(journal_path(directory))) {
  read_journal();
  if (!is_whole() || !read_bad()) {
    state_ = saved_ = {};
    journal_bytes_ = 0;
    bad_.clear();
  }
  tokens_.truncate(state_.tokens * static_cast<int64_t>(sizeof(uint32_t)));
  samples_.truncate(state_.samples * static_cast<int64_t>(sizeof(SampleStore::Record)));
  bad_file_.truncate(state_.bad_bytes);
  journal_.truncate(journal_bytes_);
}

// The last complete line counts. A line is written only after the data it describes is durable.
void SampleWriter::read_journal() {
  const std::string text = read_text_file(journal_.path(), kMaxJournalBytes);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const nlohmann::json line = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                      text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!is_journal_line(line)) break;
    state_ = {.place = {.file = line[0],
                        .offset = line[1],
                        .line = line[2],
                        .phase = line[3].get<ReadPlace::Phase>(),
                        .stored_bytes = line[12]},
              .samples = line[4],
              .tokens = line[5],
              .trained_tokens = line[6],
              .bad = line[7],
              .bad_bytes = line[8],
              .notes = {.endless = line[9], .guessed = line[10], .unreasoned = line[11]}};
    begin = end + 1;
    journal_bytes_ = static_cast<int64_t>(begin);
  }
  saved_ = state_;
}

// Whether the files hold at least what the journal says.
bool SampleWriter::is_whole() const {
  return tokens_.bytes() >= state_.tokens * static_cast<int64_t>(sizeof(uint32_t)) &&
         samples_.bytes() >= state_.samples * static_cast<int64_t>(sizeof(SampleStore::Record)) &&
         bad_file_.bytes() >= state_.bad_bytes;
}

bool SampleWriter::read_bad() {
  std::string text(static_cast<size_t>(state_.bad_bytes), '\0');
  bad_file_.read_at(0, text.data(), state_.bad_bytes);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) return false;
    try {
      const nlohmann::json line = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                        text.begin() + static_cast<std::ptrdiff_t>(end));
      bad_.push_back({.file = line.at("file"), .line = line.at("line"), .what = line.at("what")});
    } catch (const nlohmann::json::exception&) {
      return false;
    }
    begin = end + 1;
  }
  return std::ssize(bad_) == state_.bad;
}

void SampleWriter::add(const EncodedBlock& block, const ReadPlace& after) {
  tokens_.write_at(state_.tokens * static_cast<int64_t>(sizeof(uint32_t)), block.entries.data(),
                   static_cast<int64_t>(block.entries.size() * sizeof(uint32_t)));
  std::vector<SampleStore::Record> records = block.samples;
  for (SampleStore::Record& record : records) record.end += state_.tokens;
  samples_.write_at(state_.samples * static_cast<int64_t>(sizeof(SampleStore::Record)), records.data(),
                    static_cast<int64_t>(records.size() * sizeof(SampleStore::Record)));
  std::string bad;
  for (const BadRecord& record : block.bad) {
    const nlohmann::ordered_json line = {{"file", record.file}, {"line", record.line}, {"what", record.what}};
    bad += json_text(line) + '\n';
    bad_.push_back(record);
  }
  bad_file_.write_at(state_.bad_bytes, bad.data(), static_cast<int64_t>(bad.size()));
  state_.place = after;
  state_.samples += static_cast<int64_t>(records.size());
  state_.tokens += static_cast<int64_t>(block.entries.size());
  state_.trained_tokens += block.trained_tokens;
  state_.notes.add(block.notes);
  state_.bad += static_cast<int64_t>(block.bad.size());
  state_.bad_bytes += static_cast<int64_t>(bad.size());
}

void SampleWriter::sync() const {
  tokens_.sync();
  samples_.sync();
  bad_file_.sync();
}

void SampleWriter::save() {
  if (state_.place == saved_.place) return;
  sync();
  const ReadPlace& place = state_.place;
  nlohmann::json line = {place.file,
                         place.offset,
                         place.line,
                         static_cast<int32_t>(place.phase),
                         state_.samples,
                         state_.tokens,
                         state_.trained_tokens,
                         state_.bad,
                         state_.bad_bytes,
                         state_.notes.endless,
                         state_.notes.guessed,
                         state_.notes.unreasoned,
                         place.stored_bytes};
  line.push_back(checksum_of(line));
  const std::string text = json_text(line) + '\n';
  journal_.write_at(journal_bytes_, text.data(), static_cast<int64_t>(text.size()));
  journal_.sync();
  journal_bytes_ += static_cast<int64_t>(text.size());
  saved_ = state_;
}

void SampleWriter::finish(const std::string& fingerprint) {
  sync();
  const int64_t tokens_bytes = state_.tokens * static_cast<int64_t>(sizeof(uint32_t));
  const int64_t samples_bytes = state_.samples * static_cast<int64_t>(sizeof(SampleStore::Record));
  const nlohmann::ordered_json json = {{"fingerprint", fingerprint},
                                       {"samples", state_.samples},
                                       {"tokens", state_.tokens},
                                       {"trained_tokens", state_.trained_tokens},
                                       {"endless", state_.notes.endless},
                                       {"guessed", state_.notes.guessed},
                                       {"unreasoned", state_.notes.unreasoned},
                                       {"bad", state_.bad},
                                       {"tokens_xxh3", checksum_of(tokens_, tokens_bytes)},
                                       {"samples_xxh3", checksum_of(samples_, samples_bytes)}};
  write_text_file(directory_ + "/store.json", json_text(json, 2) + '\n');
  sync_directory(directory_);
}

std::string journal_path(const std::string& directory) { return directory + "/journal.jsonl"; }

void remove_journal(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove(journal_path(directory), ignored);
}

}  // namespace megatrain
