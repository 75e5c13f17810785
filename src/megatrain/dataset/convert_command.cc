#include "megatrain/dataset/convert_command.h"

#include <fmt/format.h>

#include "megatrain/base/shell_word.h"

namespace megatrain {

std::string python_command(std::string_view code, const std::string& from, const std::string& to) {
  return fmt::format("python3 -c '{}' {} {}", code, shell_word(from), shell_word(to));
}

std::string pandas_command(std::string_view reader, const std::string& from, const std::string& to) {
  return python_command(fmt::format("import sys, pandas; pandas.{}.to_json(sys.argv[2], orient=\"records\", "
                                    "lines=True, force_ascii=False)",
                                    reader),
                        from, to);
}

std::string unpack_command(std::string_view program, const std::string& from, const std::string& to) {
  const std::string file = from.starts_with('-') ? "./" + from : from;  // so that it is not taken for an option
  return fmt::format("{} {} > {}", program, shell_word(file), shell_word(to));
}

}  // namespace megatrain
