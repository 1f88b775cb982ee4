// Thrift's compact protocol, as far as the metadata of Parquet needs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chakrascope::parquet {

enum class Wire : std::uint8_t {
    Stop = 0,
    True = 1,
    False = 2,
    Byte = 3,
    I16 = 4,
    I32 = 5,
    I64 = 6,
    Double = 7,
    Binary = 8,
    List = 9,
    Set = 10,
    Map = 11,
    Struct = 12,
};

struct Field {
    int id = 0;
    Wire wire = Wire::Stop;
};

// Reads from bytes that need not be trusted: whatever reaches beyond their end is `Damaged`.
class ThriftReader {
  public:
    explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

    // Call with each field of a struct, which reads it or leaves it to `skip`.
    template <class Each>
    void fields(const Each& each) {
        enter();
        int last = 0;
        while (true) {
            const Field field = next(last);
            if (field.wire == Wire::Stop) break;
            last = field.id;
            each(field);
        }
        --depth_;
    }
    // Call with each element of a list of *elements*, by its place.
    template <class Each>
    void list(const Field& field, Wire elements, const Each& each) {
        const std::uint64_t count = begin_list(field, elements);
        for (std::uint64_t i = 0; i < count; ++i) each(i);
    }

    std::int64_t integer(const Field& field);
    std::int32_t integer32(const Field& field);
    bool boolean(const Field& field) const;
    std::string_view binary(const Field& field);
    void need(const Field& field, Wire wire) const;
    std::int64_t element_integer();
    std::string_view element_binary();
    void skip(const Field& field);
    std::size_t place() const { return place_; }

  private:
    static constexpr int kDeepest = 16;

    void enter();
    Field next(int last);
    std::uint64_t begin_list(const Field& field, Wire elements);
    std::uint8_t byte();
    std::uint64_t varint();
    std::string_view take(std::uint64_t size);
    void skip_element(Wire wire);

    std::string_view bytes_;
    std::size_t place_ = 0;
    int depth_ = 0;
};

class ThriftWriter {
  public:
    void begin();
    void end();
    void integer(int id, std::int64_t value, Wire wire = Wire::I32);
    void binary(int id, std::string_view value);
    void structure(int id);  // and then `begin`
    void list(int id, Wire elements, std::size_t count);
    void element(std::int64_t value);
    void element(std::string_view value);
    const std::string& bytes() const { return bytes_; }

  private:
    void field(int id, Wire wire);
    void varint(std::uint64_t value);

    std::string bytes_;
    std::vector<int> last_;
};

}  // namespace chakrascope::parquet
