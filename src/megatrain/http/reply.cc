#include <algorithm>

#include <fmt/format.h>

#include "megatrain/http/error_body.h"
#include "megatrain/http/loop.h"
#include "megatrain/io/json_text.h"

namespace megatrain {

void HttpReply::send(int status, const std::string& type, std::string body, HttpHeaders headers) const {
  state_->loop->post([state = state_, status, type, body = std::move(body), headers = std::move(headers)] {
    state->send(status, type, body, headers);
  });
}

void HttpReply::send_json(int status, const nlohmann::ordered_json& body, HttpHeaders headers) const {
  send(status, "application/json", json_text(body), std::move(headers));
}

std::string http_error_body(int status, const std::string& message) {
  return json_text(nlohmann::ordered_json{{"error",
                                           {{"message", message},
                                            {"type", status < 500 ? "invalid_request_error" : "server_error"},
                                            {"param", nullptr},
                                            {"code", nullptr}}}});
}

void HttpReply::send_error(int status, const std::string& message) const {
  send(status, "application/json", http_error_body(status, message));
}

void HttpReply::begin_events(HttpHeaders headers) const {
  state_->loop->post([state = state_, headers = std::move(headers)] { state->begin_events(headers); });
}

void HttpReply::event(std::string_view data, std::string_view name) const {
  std::string text;
  if (!name.empty()) text += fmt::format("event: {}\n", name);
  for (size_t begin = 0; begin <= data.size();) {
    const size_t end = std::min(data.find('\n', begin), data.size());
    text += fmt::format("data: {}\n", data.substr(begin, end - begin));
    begin = end + 1;
  }
  text += "\n";
  state_->loop->post([state = state_, text = std::move(text)] { state->write(text); });
}

void HttpReply::end() const {
  state_->loop->post([state = state_] { state->end(); });
}

bool HttpReply::gone() const { return state_->is_gone; }

void HttpReply::on_gone(std::function<void()> call) const {
  state_->loop->post([state = state_, call = std::move(call)] {
    if (state->is_gone) {
      call();
    } else if (state->request) {
      state->on_gone = call;
    }
  });
}

}  // namespace megatrain
