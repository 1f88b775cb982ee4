// A JSON scanner over bytes that may still be arriving. It builds no tree: values are parsed in place,
// or skipped once they are known to be well-formed. NaN and Infinity, which Python writes, are null.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace chakrascope::converter {

// The text is not JSON, or does not have the expected form.
struct FormatError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The bytes end within a value, and more may follow.
struct NeedMore {};

enum class Kind : std::uint8_t { Absent, Null, False, True, Integer, Number, String, Array, Object };

// A value in place: *raw* is its text, without quotes for a string.
struct Token {
    Kind kind = Kind::Absent;
    bool escaped = false;
    std::string_view raw;

    // The value as a 64-bit integer, also from a string of decimal digits or a whole number such as 7.0,
    // as some tools write; *other* if it is not one.
    std::int64_t integer(std::int64_t other) const;
    // The value as Python's str() shows it; *scratch* holds it if it had escapes.
    std::string_view text(std::string& scratch) const;
    bool is_true_integer(std::int64_t& value) const;
};

class Scanner {
  public:
    // The byte at *end* must be readable and zero. *more* means that further bytes may follow.
    Scanner(const char* begin, const char* end, bool more)
        : begin_(begin), at_(begin), end_(end), more_(more) {}

    const char* position() const { return at_; }
    // Skip whitespace and return the next byte, or 0 at the end of input.
    char peek() { return *at_ > ' ' ? *at_ : skip(); }
    // Whether only white space is left at present.
    bool exhausted();
    // Read *expected*, which must come next.
    void take(char expected) {
        if (peek() != expected) missing(expected);
        ++at_;
    }
    // Read *wanted* if it comes next.
    bool try_take(char wanted) {
        if (peek() != wanted) return false;
        ++at_;
        return true;
    }
    // Read a string, the key of a member, and the colon after it.
    Token key();
    // Read one value of any kind.
    Token value();

    // Read an object and call *member*(key) for each member, which must read the value.
    template <class Member>
    void object(Member member) {
        take('{');
        if (try_take('}')) return;
        do {
            member(key());
        } while (try_take(','));
        take('}');
    }

    // Read an array and call *element*() at the start of each element, which must read it.
    template <class Element>
    void array(Element element) {
        take('[');
        if (try_take(']')) return;
        do {
            element();
        } while (try_take(','));
        take(']');
    }

    [[noreturn]] void fail(const char* what) const;

  private:
    [[noreturn]] void ended() const;
    [[noreturn]] void missing(char expected) const;
    char skip();
    Token string();
    Token number();
    Token literal(std::string_view word, Kind kind);
    Token nested();
    void digits();
    void escape();

    const char* begin_;
    const char* at_;
    const char* end_;
    bool more_;
};

// *raw* for a message: bytes that are not printable ASCII become question marks.
std::string printable(std::string_view raw);

// Append *raw*, the inside of a string, with its escapes resolved, to *out*.
void unescape(std::string_view raw, std::string& out);

// Receives a document's parts. An incomplete part is offered again once more bytes have arrived, so nothing
// may be stored before a part has been read completely.
class Parts {
  public:
    virtual ~Parts() = default;
    // Read one element of the array.
    virtual void element(Scanner& scanner) = 0;
    // Store the member called *key*, in place.
    virtual void member(std::string_view key, const Token& value) = 0;
};

class Document {
  public:
    // *array* is the name of the member whose elements go to *parts* one by one.
    Document(std::string_view array, Parts& parts) : array_(array), parts_(parts) {}

    // Read the next bytes of the document. Raises FormatError.
    void feed(std::string_view bytes);
    // Read the rest. Raises FormatError if the document is incomplete or lacks the array.
    void finish();

  private:
    enum class State { Start, FirstMember, Member, FirstElement, Element, Done };

    void parse(bool more);
    void step(Scanner& scanner);
    void member(Scanner& scanner);
    void element(Scanner& scanner);

    std::string_view array_;
    Parts& parts_;
    State state_ = State::Start;
    bool found_ = false;
    std::string pending_;
    std::size_t passed_ = 0;      // bytes of the document before the pending ones
    std::size_t worth_more_ = 0;  // with fewer pending bytes than this, the part is still incomplete
};

}  // namespace chakrascope::converter
