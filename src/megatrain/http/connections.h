// The connections of a server: how long each has waited for a whole request, and which of them makes room for another.
// Used on the server's thread, and inside this room alone.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>

#include <chrono>
#include <cstdint>
#include <map>

#include "megatrain/http/request_scanner.h"
#include "megatrain/http/server.h"

namespace megatrain {

// Holds a reference to libevent's stream, whose socket stays open as long: libevent does not tell when it is done with
// a connection, and a pointer that it freed would soon be another connection's.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(bufferevent* stream, const HttpOptions& options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // A request is whole; its reply has ended.
  void begin_work() { in_work_ = true; }
  void end_work();

  bool is_over() const;  // libevent is done with it
  bool is_open() const { return !closing_ && !is_over(); }
  bool waits() const;  // for a whole request, with no reply on its way
  bool is_late(const HttpOptions& options, Clock::time_point now) const;
  Clock::time_point since() const { return since_; }
  int64_t partial_bytes() const { return waits() ? bytes_ : 0; }  // of a request that is not whole
  void close();                                                   // libevent finds its end
  // Answers what the scanner refused, behind the replies to the requests before it, and sends no more. What the client
  // still sends is read and dropped for a while, or the answer would be lost with the connection.
  void answer_refusal();

 private:
  static void take(evbuffer* input, const evbuffer_cb_info* info, void* self);
  void scan(evbuffer* input, size_t added);
  void cut(evbuffer* input, size_t keep);

  bufferevent* stream_;
  RequestScanner scanner_;
  int64_t added_ = 0;                       // bytes of the connection
  Clock::time_point since_ = Clock::now();  // it waits; from the first byte of a next request on for that one
  int64_t bytes_ = 0;                       // of the request that is not whole
  bool is_new_ = true;                      // it has had no request, so that its time runs without a byte
  bool in_work_ = false, closing_ = false;
  bool cutting_ = false;           // the change of the input is our own
  bool refusal_answered_ = false;  // at since_
};

class Connections {
 public:
  explicit Connections(const HttpOptions& options) : options_(options) {}  // which outlive it

  // A stream for a connection that libevent has accepted. Where there is no place for it, closes the connection that
  // has waited longest.
  bufferevent* add(event_base* base);
  Connection& of(bufferevent* stream) { return open_.at(stream); }

  // Closes those that are late and those that hold too much, and forgets those that libevent is done with.
  void look();
  // Whether one more may be accepted: a place is free, or a connection has waited long enough to lose its own.
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
