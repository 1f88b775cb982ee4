// A JSON document that arrives in pieces: an object, one member of which is a long array.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "json.h"

namespace chakrascope::converter {

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
