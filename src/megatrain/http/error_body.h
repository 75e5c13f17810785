// An error in the form that OpenAI's clients read: {"error": {"message", "type", "param": null, "code": null}}. `type`
// is "invalid_request_error" below 500 and "server_error" from 500 on.
#pragma once

#include <string>

namespace megatrain {

std::string http_error_body(int status, const std::string& message);

}  // namespace megatrain
