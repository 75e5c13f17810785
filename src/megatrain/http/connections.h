// The connections of a server: how long each has waited for a complete request, and which one is closed to accept
// another. Used only inside this room, on the server's thread.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>

#include <chrono>
#include <cstdint>
#include <map>

#include "megatrain/http/request_scanner.h"
#include "megatrain/http/server.h"

namespace megatrain {

// Holds a reference to libevent's stream, so its socket stays open. libevent does not tell when it is done with a
// connection, and a freed pointer would soon be another connection's.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(bufferevent* stream, const HttpOptions& options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Call these when a request is complete, and when its reply has ended.
  void begin_work() { in_work_ = true; }
  void end_work();

  bool is_over() const;  // libevent is done with it
  bool is_open() const { return !closing_ && !is_over(); }
  bool waits() const;  // for a complete request, with no reply in progress
  bool is_late(const HttpOptions& options, Clock::time_point now) const;
  Clock::time_point since() const { return since_; }
  int64_t partial_bytes() const { return waits() ? bytes_ : 0; }  // of an incomplete request
  void close();                                                   // libevent then sees the end of the stream
  // Answers what the scanner refused, after the replies to the requests before it, and sends nothing more. The client's
  // further bytes are read and dropped for a while; otherwise the answer would be lost with the connection.
  void answer_refusal();

 private:
  static void take(evbuffer* input, const evbuffer_cb_info* info, void* self);
  void scan(evbuffer* input, size_t added);
  void cut(evbuffer* input, size_t keep);

  bufferevent* stream_;
  RequestScanner scanner_;
  int64_t added_ = 0;  // bytes received so far
  // When it began to wait. Restarts at the first byte of each further request.
  Clock::time_point since_ = Clock::now();
  int64_t bytes_ = 0;   // of the incomplete request
  bool is_new_ = true;  // no request yet, so its time runs even without a byte
  bool in_work_ = false, closing_ = false;
  bool cutting_ = false;           // the current change of the input is our own
  bool refusal_answered_ = false;  // at the time since_
};

class Connections {
 public:
  explicit Connections(const HttpOptions& options) : options_(options) {}  // options outlive this

  // A stream for a connection that libevent has accepted. If there is no free place, closes the connection that has
  // waited longest.
  bufferevent* add(event_base* base);
  Connection& of(bufferevent* stream) { return open_.at(stream); }

  // Closes connections that are late or hold too much, and forgets those that libevent is done with.
  void look();
  // Whether one more can be accepted: a place is free, or a connection has waited long enough to lose its own.
  bool have_room();
  void clear() { open_.clear(); }

 private:
  bool have_place() const;
  Connection* longest_waiting();  // null: none has waited for least_wait_s
  void bound_memory();

  const HttpOptions& options_;
  std::map<bufferevent*, Connection> open_;
};

}  // namespace megatrain
