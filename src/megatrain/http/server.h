// A small HTTP/1.1 server for one person's machine: exact paths, whole replies and server-sent events. It serves no
// files. One thread runs it; replies may come from any thread.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "megatrain/io/json.h"

namespace megatrain {

struct HttpOptions {
  std::string host = "127.0.0.1";           // an address or a name
  int port = 0;                             // 0: one that is free
  int64_t max_header_bytes = 16384;         // request line and headers together
  int64_t max_body_bytes = 1 << 20;         // a longer body is answered with 413
  int64_t max_connections = 64;             // see least_wait_s
  int64_t max_partial_bytes = 256ll << 20;  // of requests that are not whole, together; then the largest are closed
  int64_t max_unread_bytes = 8 << 20;       // of a reply that its client does not read; the connection is then closed
  int timeout_s = 30;                       // without a byte of a request, or while a client reads nothing of a reply
  double heartbeat_s = 10;                  // events send a comment so often: what is between keeps them open
  // A request has to be whole so long after its connection opened or, of a next one, after its first byte, and a second
  // later for each `least_bytes_per_s` of it that came. Else the connection is closed, whatever trickles in.
  double request_s = 10;
  int64_t least_bytes_per_s = 16384;
  // When all connections are taken, a new one gets the place of the one that has waited longest for a whole request, if
  // that is at least so long. Else it waits: a request in work, and events, keep their places.
  double least_wait_s = 1;
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // as it was sent, without the query
  std::string query;   // behind the '?'; empty: none
  std::string body;
};

class HttpServer;

// Answers one request, from any thread. Copies stand for the same reply; when the last one goes without an answer the
// client gets a 500. Everything after the end, or after the client has gone, does nothing.
class HttpReply {
 public:
  void send(int status, const std::string& type, std::string body) const;
  void send_json(int status, const nlohmann::ordered_json& body) const;
  // As OpenAI's clients read it (error_body.h); the server's own refusals have that form, too.
  void send_error(int status, const std::string& message) const;

  // Server-sent events: begin, any number of events, end. `data` may have line ends; `name` may not.
  void begin_events() const;
  void event(std::string_view data, std::string_view name = {}) const;
  void end() const;

  // Whether the client has closed the connection. `on_gone` is called on the server's thread, once, when it does
  // before the end; at once when it has already.
  bool gone() const;
  void on_gone(std::function<void()> call) const;

 private:
  friend class HttpServer;
  struct State;
  explicit HttpReply(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class HttpServer {
 public:
  // Called on the server's thread: what takes long belongs on another one. An exception that is an Error is answered
  // with 400 for bad_config and bad_input, and with 500 otherwise.
  using Handler = std::function<void(const HttpRequest& request, HttpReply reply)>;

  // Listens at once. Throws Error(bad_config) when the host is unknown, and Error(io) when the port is taken.
  explicit HttpServer(const HttpOptions& options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Before run(). A path that ends in "/*" is all that begin so and that no other is. A path that is known is answered
  // with 405 for other methods, another one with 404. GET answers HEAD.
  void on(const std::string& method, const std::string& path, Handler handler);

  int port() const;
  std::string url() const;   // "http://127.0.0.1:8000"
  bool on_loopback() const;  // only this machine reaches it; Host and Origin have to be names of it, else 403

  // Serves until stop(), or until *stop_wish is not 0, which is looked at ten times a second. Connections are closed,
  // and open replies gone, when the server is destroyed.
  void run(const volatile std::sig_atomic_t* stop_wish = nullptr);
  void stop();  // from any thread, or a handler
  // Calls `call` on the server's thread every `seconds` while it runs; before run(), which ends with what it throws.
  void every(double seconds, std::function<void()> call);

 private:
  struct Loop;
  friend struct HttpReply::State;
  std::shared_ptr<Loop> loop_;
};

}  // namespace megatrain
