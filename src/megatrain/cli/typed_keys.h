// Reads characters from a terminal for a line editor. A signal ends the wait for one, and a paste is never a command.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// After kMarkPastes the terminal puts marks around pasted text (bracketed paste).
inline constexpr std::string_view kMarkPastes = "\x1b[?2004h", kMarkNoPastes = "\x1b[?2004l";

class TypedKeys {
 public:
  enum class Got { character, end, interrupt, resumed, quit };

  // `interrupted` is set by a signal handler. Handles SIGCONT while the object exists.
  explicit TypedKeys(const volatile std::sig_atomic_t* interrupted);
  ~TypedKeys();
  TypedKeys(const TypedKeys&) = delete;
  TypedKeys& operator=(const TypedKeys&) = delete;

  // Reads what was typed before the terminal was raw, when ctrl-D was still an end of file and not a character.
  void take_typed_ahead();

  // Reads the next character of standard input; U+FFFD stands for invalid bytes. Meanwhile the terminal sends no
  // signals and does not translate line ends; keys that stand for a signal send it from here. Keys unknown to the
  // editor are dropped.
  //
  // A paste is first read completely, so that nothing of it gets between two lines, and it is only text:
  //   - each line end becomes '\r', except one at the very end, which is dropped
  //   - a tab is preceded by ctrl-V, which makes the editor insert it literally
  //   - other control characters are dropped
  //
  // `resumed`: the process was stopped and continues, on a terminal that others have used. `quit`: ctrl-\ was typed;
  // the caller must restore the terminal and then send the signal.
  Got next(wchar_t& character);

  // Whether the character that next() gave last, and the one before it, were pasted.
  bool pasted() const { return pasted_; }
  bool pasted_before() const { return pasted_before_; }

 private:
  struct SignalKey {
    char byte;
    int signal;
  };

  bool take_unread(char& byte);
  Got read_byte(char& byte);
  std::optional<char> byte_within(int wait_ms);
  std::string rest_of_key();
  bool obey_key();
  std::optional<int> signal_of(char byte) const;
  Got give(bool pasted);
  void paste(wchar_t character);
  void forget_paste();

  const volatile std::sig_atomic_t* interrupted_;
  std::string unread_;    // bytes read but not yet consumed
  std::wstring waiting_;  // characters of a paste
  size_t given_ = 0;      // how many of these were returned
  bool pasting_ = false;
  bool after_return_ = false;  // in a paste: a line feed now belongs to the preceding carriage return
  bool pasted_ = false, pasted_before_ = false;
  std::vector<SignalKey> signal_keys_;  // keys that send signals when the terminal handles them itself
  struct sigaction before_ {};
};

}  // namespace megatrain
