#include "megatrain/dataset/tokenize_dataset.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/dataset/content_hash.h"
#include "megatrain/dataset/sample_cache.h"
#include "megatrain/dataset/sample_encoder.h"
#include "megatrain/dataset/sample_writer.h"
#include "megatrain/dataset/settle_form.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Version of what decides the samples; a new one changes every fingerprint.
constexpr int kIdentity = 3;
// Version of the stores, and of how samples are read; a new one changes every directory.
constexpr int kFormat = 5;
constexpr auto kLockPoll = std::chrono::milliseconds(100);
constexpr double kProgressSeconds = 0.2;
constexpr int64_t kUnpackedPerByte = 4;  // of a compressed file; a guess

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// The files of a dataset with their content hashes.
struct Input {
  std::vector<SampleFile> files;
  std::vector<ContentHash> contents;
  std::vector<int64_t> begins;  // bytes of all files before each one, then of all
  int64_t unpacked_bytes = 0;   // an estimate for all files
};

std::optional<Input> examine(const Dataset& dataset, const TokenizeOptions& options) {
  const std::string memory = options.cache_directory + "/hashes";
  std::error_code error;
  std::filesystem::create_directories(memory, error);
  if (error) {
    fail_io(
        fmt::format("cannot create {}: {}; set {} to a writable directory (by default, tokenised data is kept below "
                    "XDG_CACHE_HOME or ~/.cache).",
                    memory, error.message(), options.cache_key));
  }
  Input input;
  int64_t bytes = 0;
  for (const std::string& path : dataset.files) {
    auto content = content_hash(path, memory, options.stop);
    if (!content) return std::nullopt;
    const FileKind kind = kind_of_file(path);
    const bool json = holds_rows(kind) || (dataset.form != DatasetForm::detect && dataset.form != DatasetForm::text);
    if (!json && dataset.form == DatasetForm::detect) check_is_text(path);
    input.files.push_back({.path = path, .json = json, .lines = !json && dataset.text_lines, .kind = kind});
    input.begins.push_back(bytes);
    bytes += content->stamp.bytes;
    const bool packed = is_packed_name(path) || kind == FileKind::parquet || kind == FileKind::arrow;
    input.unpacked_bytes += content->stamp.bytes * (packed ? kUnpackedPerByte : 1);
    input.contents.push_back(std::move(*content));
  }
  input.begins.push_back(bytes);
  return input;
}

Json to_json(const DatasetColumns& columns) {
  return {columns.messages, columns.role,          columns.content,    columns.system,          columns.tools,
          columns.prompt,   columns.query,         columns.response,   columns.history,         columns.text,
          columns.user_tag, columns.assistant_tag, columns.system_tag, columns.observation_tag, columns.function_tag};
}

std::string hash_of(const Json& key) {
  const std::string text = key.dump(-1, ' ', false, Json::error_handler_t::replace);
  return xxh3_128(text.data(), text.size());
}

// Everything that decides the samples.
Json identity_of(const Dataset& dataset, const Input& input, const std::optional<SampleForm>& form,
                 const TextCoder& model, const TokenizeOptions& options) {
  Json files = Json::array();
  for (size_t i = 0; i < input.files.size(); ++i) {
    files.push_back({input.contents[i].hash, input.contents[i].stamp.bytes, input.files[i].json});
    if (input.files[i].lines) files.back().push_back("lines");
    const FileKind kind = input.files[i].kind;
    if (holds_rows(kind) && kind != FileKind::json) files.back().push_back(word_of(kind));
  }
  const std::tm& date = options.date;
  Json key = {{"format", kIdentity},
              {"files", std::move(files)},
              {"form", word_of(dataset.form)},
              {"columns", to_json(dataset.columns)},
              {"tokenizer", model.tokenizer_identity},
              {"template", model.chat_template == nullptr ? Json() : Json(model.template_identity)},
              {"eos", model.eos},
              {"train_on", static_cast<int>(options.train_on)},
              {"variables", options.variables},
              {"date", {date.tm_year, date.tm_mon, date.tm_mday, date.tm_hour, date.tm_min, date.tm_sec}}};
  if (options.keep_answer_within > 0) key["keep_answer"] = options.keep_answer_within;
  if (form && !form->found_columns().empty()) key["found"] = form->found_columns();
  return key;
}

BlockLimits limits_of(const TokenizeOptions& options) {
  return {.block_bytes = options.block_bytes, .sample_bytes = kMaxSampleBytes, .document_bytes = kMaxDocumentBytes};
}

void check_bad(const std::vector<BadSample>& bad, int64_t skip_bad) {
  const auto count = static_cast<int64_t>(bad.size());
  if (count <= skip_bad) return;
  const std::string first = sentence_of(bad.front());
  if (skip_bad == 0 && count == 1) fail_input(first + ".");
  fail_input(fmt::format("{}. It is the first of {} bad samples so far; {} may be skipped.", first, count, skip_bad));
}

std::vector<BadSample> named(const std::vector<BadRecord>& records, const Dataset& dataset) {
  std::vector<BadSample> bad;
  for (const BadRecord& record : records) {
    bad.push_back(
        {.place = {.file = dataset.files[static_cast<size_t>(record.file)], .line = record.line}, .what = record.what});
  }
  return bad;
}

// Reports that there is no sample to train on.
[[noreturn]] void fail_empty(const Dataset& dataset, const std::vector<BadSample>& bad) {
  constexpr size_t kShown = 3;
  if (bad.empty()) fail_input(fmt::format("the dataset {} has no samples; give files that have some.", dataset.name));
  std::string reasons;
  for (size_t i = 0; i < std::min(bad.size(), kShown); ++i) reasons += (i == 0 ? "" : "; ") + sentence_of(bad[i]);
  if (bad.size() > kShown) reasons += fmt::format("; and {} more", bad.size() - kShown);
  fail_input(fmt::format("the dataset {} has no good samples; all {} are bad: {}.", dataset.name, bad.size(), reasons));
}

// Encodes blocks on several threads and returns them in order.
class EncodingTeam {
 public:
  EncodingTeam(const SampleEncoder& encoder, int threads) : EncodingTeam(encoder) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~EncodingTeam() {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  EncodingTeam(const EncodingTeam&) = delete;
  EncodingTeam& operator=(const EncodingTeam&) = delete;

  struct Task {
    SampleBlock block;
    EncodedBlock encoded;
    std::exception_ptr error;
    bool taken = false, done = false;
  };

  int64_t count() const { return static_cast<int64_t>(tasks_.size()); }  // put and not yet taken
  int64_t bytes() const { return bytes_; }                               // of those blocks

  void put(SampleBlock block) {
    bytes_ += static_cast<int64_t>(block.bytes.size());
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::make_unique<Task>(Task{.block = std::move(block)}));
    }
    changed_.notify_all();
  }

  // Waits for the oldest one.
  std::unique_ptr<Task> take() {
    std::unique_ptr<Task> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return tasks_.front()->done; });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    bytes_ -= static_cast<int64_t>(task->block.bytes.size());
    if (task->error) std::rethrow_exception(task->error);
    return task;
  }

 private:
  // Completes the object before threads are started. If one cannot be started, the destructor joins the others.
  explicit EncodingTeam(const SampleEncoder& encoder) : encoder_(encoder) {}

  Task* find_work() {
    for (const auto& task : tasks_) {
      if (!task->taken) return task.get();
    }
    return nullptr;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      Task* task = nullptr;
      changed_.wait(lock, [&] { return quit_ || (task = find_work()) != nullptr; });
      if (quit_) return;
      task->taken = true;
      lock.unlock();
      try {
        task->encoded = encoder_.encode(task->block);
      } catch (...) {
        task->error = std::current_exception();
      }
      lock.lock();
      task->done = true;
      changed_.notify_all();
    }
  }

  const SampleEncoder& encoder_;
  std::vector<std::thread> threads_;
  int64_t bytes_ = 0;  // used only by the thread that puts and takes
  std::mutex mutex_;   // guards the fields below and the tasks in them
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Task>> tasks_;
  bool quit_ = false;
};

// Processes all blocks from the writer's place to the end; false if stopped.
bool run(const Dataset& dataset, const Input& input, const std::optional<SampleForm>& form, const TextCoder& model,
         const TokenizeOptions& options, SampleWriter& writer) {
  const SampleEncoder encoder(model, options, form);
  SampleBlocks blocks(input.files, limits_of(options), writer.place());
  EncodingTeam team(encoder, options.threads);
  const int64_t most = 2 * int64_t{options.threads};
  const auto stopped = [&] { return options.stop != nullptr && *options.stop != 0; };
  std::vector<BadSample> bad = named(writer.bad(), dataset);
  check_bad(bad, options.skip_bad);
  Clock::time_point saved = Clock::now(), told;
  SampleBlock block;
  for (bool more = true; more || team.count() > 0;) {
    if (stopped()) {
      writer.save();
      return false;
    }
    while (more && team.count() < most && (team.count() == 0 || team.bytes() < most * options.block_bytes)) {
      more = blocks.next(block);
      if (more) team.put(std::move(block));
      if (options.peak_bytes_in_flight != nullptr) {
        *options.peak_bytes_in_flight = std::max(*options.peak_bytes_in_flight, team.bytes());
      }
    }
    if (team.count() == 0) break;
    const auto task = team.take();
    for (BadSample& each : named(task->encoded.bad, dataset)) {
      bad.push_back(std::move(each));
      if (static_cast<int64_t>(bad.size()) > options.skip_bad) {
        writer.save();
        check_bad(bad, options.skip_bad);
      }
    }
    const ReadPlace& after = task->block.after;
    writer.add(task->encoded, after);
    if (seconds_since(saved) >= options.seconds_between_saves) {
      writer.save();
      saved = Clock::now();
    }
    if (options.progress && seconds_since(told) >= kProgressSeconds) {
      const double done = static_cast<double>(input.begins[static_cast<size_t>(after.file)] + after.stored_bytes);
      options.progress(done / static_cast<double>(input.begins.back()), writer.tokens());
      told = Clock::now();
    }
  }
  return true;
}

SampleStore open_store(const std::string& directory, const Dataset& dataset, const TokenizeOptions& options) {
  SampleStore store(directory, dataset.files);
  check_bad(store.bad(), options.skip_bad);
  return store;
}

void check_unchanged(const Input& input) {
  for (size_t i = 0; i < input.files.size(); ++i) {
    const std::string& path = input.files[i].path;
    if (stamp_of(path) == input.contents[i].stamp) continue;
    fail_input(fmt::format("{} changed while it was being tokenised; try again when nothing writes to it.", path));
  }
}

}  // namespace

TrainOn train_on(std::string_view word) {
  if (word == "assistant") return TrainOn::assistant;
  if (word == "last") return TrainOn::last;
  if (word == "all") return TrainOn::all;
  fail_config(
      fmt::format("\"{}\" is not a choice of train_on; expected assistant (every answer), last (the last answer) or "
                  "all (every token).",
                  word));
}

std::tm default_template_date() {
  std::tm date{};
  date.tm_year = 124;
  date.tm_mon = 6;
  date.tm_mday = 26;
  date.tm_hour = 12;
  date.tm_wday = 5;
  date.tm_yday = 207;
  return date;
}

std::optional<SampleStore> tokenize(const Dataset& dataset, const TextCoder& model, const TokenizeOptions& options) {
  ensure(options.threads >= 1 && options.block_bytes >= 1, "tokenising has a thread and a block size");
  const auto input = examine(dataset, options);
  if (!input) return std::nullopt;
  for (const std::string& sentence : {split_sentence(dataset), passed_over_sentence(dataset)})
    if (!sentence.empty()) log_warn(sentence);
  const std::optional<SampleForm> form = settle_form(dataset, input->files, limits_of(options), model, options);
  Json identity = identity_of(dataset, *input, form, model, options);
  const std::string fingerprint = hash_of(identity);
  identity["format"] = kFormat;
  const std::string complete = options.cache_directory + "/" + hash_of(identity);
  const std::string partial = complete + ".partial";
  remove_leftovers(options.cache_directory);
  std::string damage;  // what is wrong with the existing store
  const auto find_store = [&]() -> std::optional<SampleStore> {
    damage.clear();
    if (!std::filesystem::exists(complete)) return std::nullopt;
    try {
      return open_store(complete, dataset, options);
    } catch (const DamagedStore& error) {
      damage = error.what_is_wrong();
      return std::nullopt;
    }
  };
  while (true) {
    if (auto store = find_store()) return store;
    std::error_code error;
    std::filesystem::create_directory(partial, error);
    if (error)
      fail_io(fmt::format("cannot create {}: {}; check the disk, or set {} to another directory.", partial,
                          error.message(), options.cache_key));
    DirectoryLock lock(partial);
    while (!lock.try_lock()) {
      if (options.stop != nullptr && *options.stop != 0) return std::nullopt;
      std::this_thread::sleep_for(kLockPoll);
    }
    if (!lock.is_at(partial)) continue;  // another process finished it or gave up
    PartialPath unsaved(partial);        // removed unless something is saved
    unsaved.created();
    if (auto store = find_store()) return store;  // another process made it before we got the lock
    if (!damage.empty()) {
      log_warn(fmt::format("the tokenised samples in {} are damaged ({}) and will be rebuilt", complete, damage));
      remove_damaged_store(complete);
    }
    SampleWriter writer(partial);
    if (options.begins) {
      const int64_t all = input->begins.back();
      const int64_t done = input->begins[static_cast<size_t>(writer.place().file)] + writer.place().stored_bytes;
      const double fraction = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(all, 1));
      options.begins(std::llround(static_cast<double>(input->unpacked_bytes) * (1 - fraction)), fraction,
                     writer.tokens());
    }
    const auto keep_saved = [&] {
      if (writer.has_saved()) unsaved.keep();
    };
    try {
      if (!run(dataset, *input, form, model, options, writer)) {
        keep_saved();
        return std::nullopt;
      }
      check_unchanged(*input);
      if (writer.samples() == 0) fail_empty(dataset, named(writer.bad(), dataset));
    } catch (...) {
      keep_saved();
      throw;
    }
    writer.finish(fingerprint);
    unsaved.keep();
    rename_path(partial, complete);
    sync_directory(options.cache_directory);
    remove_journal(complete);
    if (options.progress) options.progress(1, writer.tokens());
    return open_store(complete, dataset, options);
  }
}

}  // namespace megatrain
