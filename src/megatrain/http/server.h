// A small HTTP/1.1 server for one person's machine: exact paths, complete replies and server-sent events. It serves no
// files. It runs on one thread; replies may come from any thread.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

struct HttpOptions {
  std::string host = "127.0.0.1";    // address or name
  int port = 0;                      // 0: any free port
  int64_t max_header_bytes = 16384;  // request line and headers together
  int64_t max_body_bytes = 1 << 20;  // a longer body is answered with 413
  int64_t max_connections = 64;      // see least_wait_s
  // Total size of incomplete requests; beyond it, the connections with the largest are closed.
  int64_t max_partial_bytes = 256ll << 20;
  // Unread bytes of a reply; beyond it, the connection is closed.
  int64_t max_unread_bytes = 8 << 20;
  // Limit without a byte of a request, and for a client that reads nothing of a reply.
  int timeout_s = 30;
  // Interval of comments in event streams, so that proxies keep the connection open.
  double heartbeat_s = 10;
  // A request has to be complete this long after its connection opened (for a further request, after its first byte),
  // plus a second for each `least_bytes_per_s` of it received. Otherwise the connection is closed, even if bytes
  // trickle in.
  double request_s = 10;
  int64_t least_bytes_per_s = 16384;
  // If all connections are taken, a new one replaces the one that has waited longest for a complete request, if that is
  // at least this long. Otherwise it waits: requests in work and event streams keep their places.
  double least_wait_s = 1;
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // as sent, without the query
  std::string query;   // the part after '?'; empty: none
  std::string body;
  std::string authorization = {};  // the header; empty: none
};

// More headers of a reply: names and values.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

class HttpServer;

// Answers one request, from any thread. Copies are the same reply; if the last copy is destroyed without an answer, the
// client gets a 500. Calls after the end, or after the client has gone, do nothing.
class HttpReply {
 public:
  void send(int status, const std::string& type, std::string body, HttpHeaders headers = {}) const;
  void send_json(int status, const nlohmann::ordered_json& body, HttpHeaders headers = {}) const;
  // In the form that OpenAI's clients read (error_body.h). The server's own refusals have that form, too.
  void send_error(int status, const std::string& message) const;

  // Server-sent events: begin, any number of events, end. `data` may have line ends; `name` may not.
  void begin_events(HttpHeaders headers = {}) const;
  void event(std::string_view data, std::string_view name = {}) const;
  void end() const;

  // Whether the client has closed the connection. `on_gone` is called once, on the server's thread, if the client
  // closes it before the end; immediately if it already has.
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
  // Called on the server's thread, so long work belongs on another one. An Error thrown by it is answered with 400 for
  // bad_config and bad_input, otherwise with 500.
  using Handler = std::function<void(const HttpRequest& request, HttpReply reply)>;

  // Starts to listen. Throws Error(bad_config) if the host is unknown, and Error(io) if the port is taken.
  explicit HttpServer(const HttpOptions& options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Call this before run(). A path that ends in "/*" matches everything below it that has no handler of its own. Other
  // methods of a known path are answered with 405, unknown paths with 404. GET also answers HEAD.
  void on(const std::string& method, const std::string& path, Handler handler);

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8000"
  // Whether only this machine can reach it. Host and Origin must then be names of this machine; otherwise the answer is
  // 403.
  bool on_loopback() const;

  // Serves until stop(), or until *stop_wish, checked ten times a second, is not 0. When the server is destroyed,
  // connections are closed and open replies count as gone.
  void run(const volatile std::sig_atomic_t* stop_wish = nullptr);
  void stop();  // from any thread, or from a handler
  // Calls `call` on the server's thread every `seconds` while it runs. Call this before run(), which rethrows what it
  // throws.
  void every(double seconds, std::function<void()> call);

 private:
  struct Loop;
  friend struct HttpReply::State;
  std::shared_ptr<Loop> loop_;
};

}  // namespace megatrain
