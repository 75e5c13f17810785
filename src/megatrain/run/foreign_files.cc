#include "megatrain/run/foreign_files.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/lies_in.h"
#include "megatrain/run/run_lock.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

const std::set<std::string>& own_texts() {
  static const std::set<std::string> kTexts = {"config.resolved.yaml",
                                               "translation.txt",
                                               "model_config.json",
                                               "plan.json",
                                               "memory.json",
                                               "identity.json",
                                               "hash.json",
                                               "trace.json",
                                               "lanes.json",
                                               "live.json",
                                               "metrics.jsonl",
                                               "eval.jsonl",
                                               "samples.jsonl",
                                               "hash.former.json",
                                               "best.json",
                                               "best.pending.json",
                                               "companions.json",
                                               "metrics.jsonl.damaged",
                                               "eval.jsonl.damaged",
                                               "samples.jsonl.damaged"};
  return kTexts;
}

bool is_dump(const std::string& name) {
  static const std::regex kDump(R"((state|grads)-\d+\.safetensors)");
  return std::regex_match(name, kDump);
}

// Names that a run writes in place, through a symbolic link if it is one. RUN/model is replaced as a whole, so it is
// not among them.
bool is_written_in_place(const std::string& name) {
  return own_texts().contains(name) || is_dump(name) || name == "checkpoints" || name == "tensorboard" ||
         name == "best" || name == "companions";
}

// Names that a run writes or removes.
bool is_name_of_run(const std::string& name) { return is_written_in_place(name) || name == "model" || name == "lock"; }

// NAME of NAME.PID-N.partial, which write_text_file uses while it writes; empty for other names.
std::string name_of_text(const std::string& partial) {
  static const std::regex kForm(R"((.+)\.\d+-\d+\.partial)");
  std::smatch parts;
  return std::regex_match(partial, parts, kForm) ? parts[1].str() : "";
}

// Files of a Hugging Face directory, which a run must not be put into.
bool is_file_of_model(const std::string& name) {
  return name == "config.json" || name == "tokenizer.json" || name.ends_with(".safetensors");
}

bool is_left_by_early_death(const std::string& directory, const std::string& name) {
  return (name == "lock" && is_own_lock(directory)) || is_own_partial(name) || name == "model.partial";
}

}  // namespace

bool is_own_partial(const std::string& name) {
  constexpr std::string_view kPartial = ".partial";
  return own_texts().contains(name_of_text(name)) ||
         (name.ends_with(kPartial) && is_dump(name.substr(0, name.size() - kPartial.size())));
}

void check_nothing_foreign(const std::string& directory, const std::vector<std::string>& inputs) {
  std::error_code code;
  std::vector<std::string> foreign;
  for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.') || name == "lost+found" || is_left_by_early_death(directory, name)) continue;
    std::error_code none;
    const fs::path entry = fs::weakly_canonical(it->path(), none);
    const bool input = std::any_of(inputs.begin(), inputs.end(), [&](const std::string& path) {
      return !path.empty() && lies_in(fs::weakly_canonical(path, none), entry);
    });
    const bool beside = fs::is_regular_file(entry, none) && !is_file_of_model(name);
    if (!is_name_of_run(name) && (input || beside)) continue;
    foreign.push_back(printable(name));
  }
  if (code && code != std::errc::no_such_file_or_directory)
    fail_io(fmt::format("cannot read run_dir {}: {}; choose another with --run_dir=DIR", directory, code.message()));
  if (foreign.empty()) return;
  constexpr size_t kNamed = 3;
  std::sort(foreign.begin(), foreign.end());
  const size_t more = foreign.size() - std::min(foreign.size(), kNamed);
  foreign.resize(foreign.size() - more);
  fail_config(
      fmt::format("run_dir {} is not a megatrain run: it contains {}{}, which a run would overwrite or move aside. "
                  "Choose a new or empty directory with --run_dir=DIR",
                  directory, fmt::join(foreign, ", "), more ? fmt::format(" and {} more", more) : ""));
}

void check_no_links(const std::string& directory) {
  std::error_code code;
  for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    std::error_code none;
    if (!is_written_in_place(name) || !it->is_symlink(none)) continue;
    fail_io(
        fmt::format("{} is a symbolic link to {}, and a resumed run would write through it; replace it with its "
                    "target, or remove it (run_dir itself may be a link)",
                    it->path().string(), printable(fs::read_symlink(it->path(), none).string())));
  }
  if (code) fail_io(fmt::format("cannot read run_dir {}: {}; check its permissions", directory, code.message()));
}

}  // namespace megatrain
