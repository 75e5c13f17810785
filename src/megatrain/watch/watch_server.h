// Serves the report page of running runs: GET of five paths (/, /figures, /style.css, /script.js, /events) and nothing
// else. No request names a path of the file system.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "megatrain/http/server.h"
#include "megatrain/watch/watcher.h"

namespace megatrain {

class WatchServer {
 public:
  WatchServer(Watcher& watcher, const HttpOptions& options);

  const HttpServer& http() const { return server_; }
  // Serves until *stop_wish is not 0.
  void run(const volatile std::sig_atomic_t* stop_wish) { server_.run(stop_wish); }
  void stop() { server_.stop(); }

 private:
  void page(const HttpRequest& request, const HttpReply& reply) const;
  void figures(const HttpRequest& request, const HttpReply& reply) const;
  void follow(const HttpReply& reply);
  void look();
  // What the pages are told about a run; the text changes whenever something that they show does.
  std::string event_of(size_t index) const;

  Watcher& watcher_;
  HttpServer server_;
  std::vector<std::string> told_;  // last event of each run
  std::vector<HttpReply> followers_;
};

}  // namespace megatrain
