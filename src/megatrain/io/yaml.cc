#include "megatrain/io/yaml.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxBytes = 4 * kMiB;
constexpr int64_t kMaxLevels = 32;
constexpr int64_t kMaxNodes = 100'000;

// Measures what the parser reads before anything is built from it. A node with an anchor keeps its size and height for
// the aliases that follow, so that aliases of aliases are measured without being expanded.
class Measure : public YAML::EventHandler {
 public:
  explicit Measure(const std::string& name) : name_(name) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(mark, tag);
    if (value.find('\0') != std::string::npos) refuse(mark, "this value contains a NUL character; remove it");
    leaf(mark, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    start(mark, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    start(mark, anchor);
  }
  void OnMapEnd() override { end(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) {  // the anchored node is still open
      refuse(mark, "this alias refers to a value that contains it; write the value out");
    }
    add(mark, found->second);
  }

 private:
  struct Size {
    int64_t nodes = 1;   // including everything below it
    int64_t levels = 1;  // of nested lists and maps, itself included
  };
  struct Open {
    Size size;
    YAML::anchor_t anchor = 0;
    YAML::Mark mark;
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& what) const {
    fail_config(fmt::format("{}:{}: {}", name_, mark.line + 1, what));
  }

  // yaml-cpp gives these tags to values without one. A tag that is written out would change what a value is.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    refuse(mark, fmt::format("the tag {} is not supported; write the value without a tag", tag));
  }

  void leaf(const YAML::Mark& mark, YAML::anchor_t anchor) { close(mark, {.nodes = 1, .levels = 0}, anchor); }

  void start(const YAML::Mark& mark, YAML::anchor_t anchor) {
    open_.push_back({.anchor = anchor, .mark = mark});
    check_levels(mark, std::ssize(open_));
  }

  void end() {
    const Open done = open_.back();
    open_.pop_back();
    close(done.mark, done.size, done.anchor);
  }

  void close(const YAML::Mark& mark, const Size& size, YAML::anchor_t anchor) {
    if (anchor != 0) anchored_[anchor] = size;
    add(mark, size);
  }

  // Adds to the enclosing open node. A size exceeds the limits by at most one alias, so nothing overflows.
  void add(const YAML::Mark& mark, const Size& size) {
    check_levels(mark, std::ssize(open_) + size.levels);
    const int64_t nodes = size.nodes + (open_.empty() ? 0 : open_.back().size.nodes);
    if (nodes > kMaxNodes) {
      refuse(mark, fmt::format("the document has more than {} values, with every alias expanded; make it smaller",
                               kMaxNodes));
    }
    if (open_.empty()) return;
    Size& around = open_.back().size;
    around.nodes = nodes;
    around.levels = std::max(around.levels, size.levels + 1);
  }

  void check_levels(const YAML::Mark& mark, int64_t levels) const {
    if (levels > kMaxLevels) refuse(mark, fmt::format("this nests deeper than {} levels; make it flatter", kMaxLevels));
  }

  const std::string& name_;
  std::vector<Open> open_;  // lists and maps, outermost first
  std::map<YAML::anchor_t, Size> anchored_;
};

// Number of the first line that has a tab before its text; 0 if there is none.
int64_t line_with_tab(const std::string& text) {
  std::istringstream lines(text);
  int64_t number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    const size_t end = line.find_first_not_of(" \t\r");
    if (end != std::string::npos && line.substr(0, end).find('\t') != std::string::npos) return number;
  }
  return 0;
}

// Rewords the parser's messages for the most common mistakes.
std::string plain(const std::string& message) {
  if (message == "end of map flow not found") return "a '{' or a quote before here is never closed";
  if (message == "end of sequence flow not found") return "a '[' or a quote before here is never closed";
  if (message == "illegal map value") return "unexpected ':'; quote text that contains one, as in \"a: b\"";
  if (message == "end of map not found") return "the line is not indented like the keys before it";
  return message;
}

}  // namespace

YAML::Node parse_yaml(const std::string& text, const std::string& name) {
  if (std::ssize(text) > kMaxBytes) {
    fail_config(
        fmt::format("{} has {} bytes; a YAML file may have at most {}", name, text.size(), format_bytes(kMaxBytes)));
  }
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    const auto before = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n');
    fail_config(fmt::format("{}:{}: the file contains a NUL byte; it must be UTF-8 text", name, before + 1));
  }
  try {
    std::stringstream stream(text);
    YAML::Parser parser(stream);
    Measure measure(name);
    // A second document may also be text after the first that yaml-cpp neither reads nor refuses (YAML::LoadAll never
    // returns on it).
    if (parser.HandleNextDocument(measure) && parser.HandleNextDocument(measure)) {
      fail_config(fmt::format("{}: expected one YAML document", name));
    }
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    if (const int64_t line = line_with_tab(text); line > 0)
      fail_config(fmt::format("{}:{}: the line is indented with a tab; YAML allows only spaces", name, line));
    fail_config(fmt::format("{}:{}: not valid YAML: {}", name, error.mark.line + 1, plain(error.msg)));
  }
}

bool is_flow_text(const std::string& text) {
  return (text.starts_with('[') && text.ends_with(']')) || (text.starts_with('{') && text.ends_with('}'));
}

}  // namespace megatrain
