// Runs the program as a user does, and writes the configurations and broken models that tests give it.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "megatrain/io/json.h"
#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain::cli {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

struct Outcome {
  int code = 0;  // exit code, or minus the number of the signal that ended it
  std::string out, err;
};

class Process {
 public:
  // `input` is its standard input. `shell`, if given, is run by sh with the program as $0 and the words as $@.
  explicit Process(const Words& words, const std::string& input = "", const std::string& shell = "") {
    write_bytes(in(), input);
    Words all = {program()};
    if (!shell.empty()) all = {"/bin/sh", "-c", shell, program()};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, in().c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out().c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err().c_str(), O_WRONLY | O_CREAT, 0600);
    // Under nohup the tests ignore SIGHUP, which a child would inherit.
    sigset_t stopping;
    sigemptyset(&stopping);
    for (const int each : {SIGHUP, SIGINT, SIGTERM}) sigaddset(&stopping, each);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &stopping);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    EXPECT_EQ(::posix_spawn(&pid_, all[0].c_str(), &actions, &attributes, argv.data(), environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }

  // A test that ends early leaves nothing running.
  ~Process() {
    if (waited_) return;
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  pid_t pid() const { return pid_; }

  // Its messages so far.
  std::string said() const { return read_bytes(err()); }

  bool ended() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  }

  Outcome wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    waited_ = true;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_bytes(out()), read_bytes(err())};
  }

 private:
  std::string in() const { return files_ / "in"; }
  std::string out() const { return files_ / "out"; }
  std::string err() const { return files_ / "err"; }

  TemporaryDirectory files_;
  pid_t pid_ = 0;
  bool waited_ = false;
};

inline Outcome megatrain(const Words& words, const std::string& input = "") { return Process(words, input).wait(); }

inline Outcome succeed(const Words& words, const std::string& input = "") {
  Outcome outcome = megatrain(words, input);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome;
}

// The program exits with this code, and its own message on standard error contains every part.
inline void expect_refusal(const Words& words, ExitCode code, std::initializer_list<std::string> parts) {
  const Outcome outcome = megatrain(words);
  EXPECT_EQ(outcome.code, static_cast<int>(code)) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("megatrain: "), std::string::npos) << outcome.err;
  for (const std::string& part : parts)
    EXPECT_NE(outcome.err.find(part), std::string::npos) << "no '" << part << "' in: " << outcome.err;
}

inline std::string golden(const std::string& name) { return in_repository("tests/parity/goldens/") + name; }

// A configuration that trains a golden according to its expected.json; `extra` is appended.
inline std::string golden_yaml(const std::string& name, const std::string& model, const std::string& run_dir,
                               const std::string& extra = "") {
  const json expected = json::parse(read_bytes(golden(name) + "/expected.json"));
  std::string text =
      fmt::format("model.path: {}\nrun_dir: {}\ndevice: cpu\nthreads: 1\nprecision: fp32\nseq_len: {}\nbatch: {}\n",
                  model, run_dir, expected.at("seq_len").dump(), expected.at("batch").dump());
  for (const auto& [key, value] : expected.at("data").items()) {
    text += fmt::format("data.{}: {}\n", key,
                        key == "dtype" ? value.get<std::string>() : golden(name) + "/" + value.get<std::string>());
  }
  for (const auto& [key, value] : expected.at("optim").items()) {
    text += fmt::format("optim.{}: {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text + extra;
}

// A test's directory: a configuration for a golden, and a run directory that does not exist yet.
class Place {
 public:
  explicit Place(const std::string& name = "llama_linear", const std::string& extra = "") : name_(name), extra_(extra) {
    train_model(golden(name) + "/model");
  }

  std::string operator/(const std::string& name) const { return directory_ / name; }
  std::string config() const { return directory_ / "config.yaml"; }
  std::string run() const { return directory_ / "run"; }
  const std::string& path() const { return directory_.path(); }

  // A copy of the golden's model that a test may damage; the configuration then names it.
  std::string own_model() {
    const std::string copy = directory_ / "model";
    fs::copy(golden(name_) + "/model", copy, fs::copy_options::recursive);
    train_model(copy);
    return copy;
  }

 private:
  void train_model(const std::string& model) const { write_bytes(config(), golden_yaml(name_, model, run(), extra_)); }

  TemporaryDirectory directory_;
  std::string name_, extra_;
};

inline std::vector<json> json_lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

inline std::vector<json> metrics_of(const std::string& run) { return json_lines(read_bytes(run + "/metrics.jsonl")); }

inline json hash_of(const std::string& path) { return json::parse(succeed({"hash", path, "--json"}).out); }

// A safetensors file in its parts, so that a test can falsify them.
struct RawSafetensors {
  json header;
  std::string data;

  explicit RawSafetensors(const std::string& path) {
    const std::string bytes = read_bytes(path);
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes.at(static_cast<size_t>(i)));
    header = json::parse(bytes.substr(8, length));
    data = bytes.substr(8 + length);
  }
  void write(const std::string& path) const { write_bytes(path, safetensors_bytes(header.dump(), data)); }

  std::string bytes_of(const std::string& name) const {
    const json& at = header.at(name).at("data_offsets");
    return data.substr(at[0].get<size_t>(), at[1].get<size_t>() - at[0].get<size_t>());
  }
};

// Nothing half-written remains anywhere below the directory.
inline void expect_no_partial(const std::string& directory) {
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
  }
}

// Waits until `ready`, at most a minute.
inline bool eventually(const std::function<bool()>& ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace megatrain::cli
