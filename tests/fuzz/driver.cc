// Runs a fuzz target without libFuzzer, with any compiler: every file of the corpus, then mutations of them determined
// by the seed. It accepts libFuzzer's options of the same names, so that one command line works for both.
//
//   NAME_fuzz [-seed=N] [-runs=N] [-max_total_time=SECONDS] [-max_len=BYTES] FILE-OR-FOLDER…
//
// The target runs in a child process. If the child dies, or spends more than 20 s of CPU time on one input, that input
// is kept as crash-NAME_fuzz in the current directory, and the exit status is 1. To run it alone, pass it as FILE with
// -runs=0.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::string;

constexpr int kMostSeconds = 20;  // of CPU time, per input

struct Options {
  uint64_t seed = 1;
  int64_t runs = INT64_MAX;  // number of mutations
  double max_total_seconds = 5;
  size_t max_len = 4096;
  std::vector<std::string> corpus;
};

[[noreturn]] void usage(const char* what) {
  std::fprintf(stderr,
               "%s\nusage: NAME_fuzz [-seed=N] [-runs=N] [-max_total_time=S] [-max_len=BYTES] FILE-OR-FOLDER…\n", what);
  std::exit(2);
}

Options read_options(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!word.starts_with('-')) {
      options.corpus.push_back(word);
      continue;
    }
    if (equals == std::string::npos) usage(("an option without a value: " + word).c_str());
    char* end = nullptr;
    const double value = std::strtod(word.c_str() + equals + 1, &end);
    if (*end != 0 || value < 0) usage(("not a number: " + word).c_str());
    if (name == "-seed")
      options.seed = static_cast<uint64_t>(value);
    else if (name == "-runs")
      options.runs = static_cast<int64_t>(value);
    else if (name == "-max_total_time")
      options.max_total_seconds = value;
    else if (name == "-max_len")
      options.max_len = static_cast<size_t>(value);
    else
      usage(("unknown option: " + word).c_str());
  }
  return options;
}

// Sorted by name, so that a seed means the same inputs everywhere.
std::vector<Bytes> read_corpus(const std::vector<std::string>& places) {
  std::vector<std::string> paths;
  for (const std::string& place : places) {
    if (!std::filesystem::exists(place)) usage(("no such file or folder: " + place).c_str());
    if (!std::filesystem::is_directory(place))
      paths.push_back(place);
    else
      for (const auto& entry : std::filesystem::directory_iterator(place))
        if (entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) usage("the corpus is empty");
  return corpus;
}

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, const Options& options)
      : corpus_(corpus), max_len_(options.max_len), random_(options.seed) {}

  // A corpus file with a few changes.
  Bytes next() {
    Bytes bytes = corpus_[below(corpus_.size())];
    if (bytes.size() > max_len_) bytes = bytes.substr(below(4) == 0 ? below(bytes.size()) : 0, max_len_);
    for (size_t changes = 1 + below(6); changes > 0; --changes) change(bytes);
    if (bytes.size() > max_len_) bytes.resize(max_len_);
    return bytes;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(random_() % n); }

  Bytes piece(const Bytes& of) {
    const size_t begin = below(of.size());
    return of.substr(begin, 1 + below(std::min<size_t>(of.size() - begin, 64)));
  }

  void change(Bytes& bytes) {
    // What parsers treat specially: quotes and brackets, numbers at the edge of a type, broken UTF-8, template syntax.
    static const std::vector<std::string_view> kWords = {"\"",
                                                         "\\",
                                                         "{",
                                                         "}",
                                                         "[",
                                                         "]",
                                                         ",",
                                                         ":",
                                                         "\n",
                                                         "\r\n",
                                                         "\t",
                                                         "0",
                                                         "-1",
                                                         "1e999",
                                                         "-0.0",
                                                         "null",
                                                         "true",
                                                         "{}",
                                                         "[]",
                                                         "\"\"",
                                                         "\\u0000",
                                                         "\\ud800",
                                                         "\xFF",
                                                         "\xC3",
                                                         "\xF4\x90\x80\x80",
                                                         "\xED\xA0\x80",
                                                         "9223372036854775808",
                                                         "18446744073709551616",
                                                         "{%",
                                                         "%}",
                                                         "{{",
                                                         "}}",
                                                         "{#",
                                                         "|",
                                                         "(",
                                                         ")",
                                                         "for",
                                                         "endfor",
                                                         "if",
                                                         "loop",
                                                         "~"};
    const size_t at = below(bytes.size() + 1);
    switch (below(9)) {
      case 0:
        if (!bytes.empty()) bytes[below(bytes.size())] ^= static_cast<char>(1U << below(8));
        break;
      case 1:
        if (!bytes.empty()) bytes[below(bytes.size())] = static_cast<char>(random_());
        break;
      case 2: bytes.erase(at, 1 + below(16)); break;
      case 3: bytes.insert(at, 1, static_cast<char>(random_())); break;
      case 4: bytes.insert(at, kWords[below(kWords.size())]); break;
      case 5: bytes.insert(at, piece(corpus_[below(corpus_.size())])); break;
      case 6: bytes.insert(at, piece(bytes)); break;
      case 7: bytes.resize(at); break;
      default: {  // numbers are the likeliest place for a wrong size
        const size_t digit = bytes.find_first_of("0123456789", at);
        if (digit == Bytes::npos) break;
        bytes.replace(digit, 1 + below(3), std::to_string(random_() >> below(64)));
      }
    }
  }

  const std::vector<Bytes>& corpus_;
  size_t max_len_;
  std::mt19937_64 random_;
};

// The input being run, in a file that outlives this process.
class CurrentInput {
 public:
  explicit CurrentInput(std::string path) : path_(std::move(path)) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file_ < 0) usage(("cannot write " + path_).c_str());
  }
  void set(const Bytes& bytes) const {
    if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, bytes.data(), bytes.size(), 0) < 0)
      usage(("cannot write " + path_).c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_;
};

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

int run(const Options& options, const std::vector<Bytes>& corpus, const CurrentInput& current) {
  double slowest = 0;
  const auto one = [&](const Bytes& bytes) {
    current.set(bytes);
    const double start = cpu_seconds();
    const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = kMostSeconds, .tv_usec = 0}};
    ::setitimer(ITIMER_PROF, &limit, nullptr);  // ends the process
    // A copy of exactly this size, so that reads past its end are detected.
    const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(copy.data(), copy.size());
    slowest = std::max(slowest, cpu_seconds() - start);
  };
  for (const Bytes& bytes : corpus) one(bytes);
  Mutator mutator(corpus, options);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  int64_t runs = 0;
  for (; runs < options.runs && seconds() < options.max_total_seconds; ++runs) one(mutator.next());
  std::printf("%zu inputs of the corpus, %lld mutations of seed %llu, the slowest took %.2f s\n", corpus.size(),
              static_cast<long long>(runs), static_cast<unsigned long long>(options.seed), slowest);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const Options options = read_options(count, words);
  const std::string name = std::filesystem::path(words[0]).filename().string();
  const std::vector<Bytes> corpus = read_corpus(options.corpus);  // may hold our own output file, so read it first
  const CurrentInput current("crash-" + name);
  const pid_t child = ::fork();
  if (child < 0) usage("cannot start a process");
  if (child == 0) return run(options, corpus, current);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::filesystem::remove(current.path());
    return 0;
  }
  std::fprintf(stderr, "%s: the target failed; its input is in %s\n", name.c_str(),
               std::filesystem::absolute(current.path()).c_str());
  return 1;
}
