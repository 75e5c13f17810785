// Chat templates that data.template can name. Their Jinja text is in builtin/.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace megatrain {

// The Jinja text of a built-in template; empty if there is none of this name. "gpt_oss" is "gpt-oss".
std::optional<std::string> builtin_template(const std::string& name);

std::vector<std::string> builtin_template_names();

// The Jinja text that data.template names: of a built-in template, otherwise of a file. Throws Error(bad_input).
std::string read_template(const std::string& name_or_file);

}  // namespace megatrain
