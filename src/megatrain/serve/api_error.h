// An error in the form that OpenAI's clients read.
#pragma once

#include <string>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"

namespace megatrain {

class ApiError : public Error {
 public:
  // `param` is the field of the request and `code` a word for programs; both may be empty.
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : Error(ExitCode::bad_input, message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }

  nlohmann::ordered_json body() const {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
    };
    return {{"error",
             {{"message", what()},
              {"type", status_ < 500 ? "invalid_request_error" : "server_error"},
              {"param", or_null(param_)},
              {"code", or_null(code_)}}}};
  }

 private:
  int status_;
  std::string param_, code_;
};

}  // namespace megatrain
