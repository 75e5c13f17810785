#include "megatrain/io/line_file.h"

#include <limits>
#include <sstream>

#include "megatrain/io/json.h"
#include "megatrain/io/replace.h"

namespace megatrain {

LineFile::LineFile(const std::string& path) : file_(File::open_to_write(path)), at_(file_.bytes()) {
  if (at_ == 0) return;
  char last = 0;
  file_.read_at(at_ - 1, &last, 1);
  if (last != '\n') append("");
}

void LineFile::append(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  file_.write_at(at_, text.data(), static_cast<int64_t>(text.size()));
  at_ += static_cast<int64_t>(text.size());
}

void keep_lines_up_to(const std::string& path, int64_t last_step) {
  if (!can_read(path)) return;
  const std::string text = read_text_file(path, std::numeric_limits<int64_t>::max());
  std::istringstream in(text);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) continue;
    const nlohmann::json step = object.value("step", nlohmann::json(0));
    if (step.is_number_integer() && step.get<int64_t>() <= last_step) kept += line + "\n";
  }
  if (kept != text) write_text_file(path, kept);
}

}  // namespace megatrain
