// The report's page, served and growing: GET of five paths (/, /figures, /style.css, /script.js, /events) and nothing
// else. No path of the file system is part of any.
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
  // Until *stop_wish is not 0.
  void run(const volatile std::sig_atomic_t* stop_wish) { server_.run(stop_wish); }
  void stop() { server_.stop(); }

 private:
  void page(const HttpRequest& request, const HttpReply& reply) const;
  void figures(const HttpRequest& request, const HttpReply& reply) const;
  void follow(const HttpReply& reply);
  void look();
  // What the pages are told of a run; another text when something that they show is new.
  std::string event_of(size_t index) const;

  Watcher& watcher_;
  HttpServer server_;
  std::vector<std::string> told_;  // the last event of each run
  std::vector<HttpReply> followers_;
};

}  // namespace megatrain
