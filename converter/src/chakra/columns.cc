#include "columns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "writer.h"

namespace chakrascope::chakra {
namespace {

constexpr std::int64_t kMetadataId = -1;
constexpr std::size_t kGroupDigits = 18;
// Types of memory and communication nodes.
constexpr std::int32_t kMemLoad = 2, kMemStore = 3, kFirstComm = 5;

// Return the kind of a node without the attribute "kind", which follows from its Chakra type.
std::string_view kind_of_type(std::int32_t type) {
    if (type >= kFirstComm) return "communication";
    return type == kMemLoad || type == kMemStore ? "memory" : "compute";
}

template <class T>
void set(std::vector<T>& column, std::size_t row, std::size_t rows, T unset, T value) {
    if (column.empty()) column.assign(rows, unset);
    column[row] = value;
}

// Reads nodes one by one into columns.
class Intake {
  public:
    // Reserve space for *rows* nodes of *size* bytes in total.
    Intake(std::string_view metadata, std::size_t rows, std::size_t size);

    // Read a node. Returns false, without reading the node, if its id is not higher than the id of the
    // previous node.
    bool add(const Reader& message);
    NodeColumns take() { return std::move(columns_); }

    // The following functions are callbacks of `read_node`.
    void id(std::uint64_t number, const Reader&) { id_ = number; }
    void name(std::string_view text, const Reader& reader);
    void type(std::int32_t number, const Reader&) { type_ = number; }
    void ctrl_dep(std::uint64_t id) { sources_.emplace_back(id, kCtrlEdge); }
    void data_dep(std::uint64_t id) { sources_.emplace_back(id, kDataEdge); }
    void duration_micros(std::uint64_t duration) { micros_ = duration; }
    void attribute(const Attribute& found, std::string_view whole, const Reader&);
    void other(std::uint32_t key, std::string_view whole, const Reader& reader);

  private:
    bool says(Key key) const { return (said_ >> static_cast<unsigned>(key) & 1) != 0; }
    bool has_column(const Attribute& found);
    std::int64_t bounded(const Attribute& found) const;
    std::int64_t group_named(std::string_view name) const;
    void clear();
    void commit();
    void commit_texts(std::size_t row);
    void commit_edges();
    void commit_rest();
    void keep(std::string_view bytes);
    [[noreturn]] void refuse(std::string_view why) const { refuse_node(id_, place_, why); }

    const std::size_t rows_, size_;
    NodeColumns columns_;
    std::size_t place_ = 0;  // byte offset of the current node
    std::uint64_t id_ = 0, micros_ = 0;
    std::int32_t type_ = 0;
    std::uint32_t said_ = 0;  // a bit for each `Key` that the node has
    bool is_cpu_op_ = false;
    std::int64_t group_ = 0;
    std::string_view name_;
    std::array<std::int64_t, kIntegerColumns> integers_{};
    std::array<std::string_view, kTextColumns> texts_;
    std::vector<std::pair<std::uint64_t, std::int64_t>> sources_;
    std::vector<std::string_view> rest_;
};

Intake::Intake(std::string_view metadata, std::size_t rows, std::size_t size) : rows_(rows), size_(size) {
    columns_.id.reserve(rows);
    columns_.type.reserve(rows);
    columns_.name.numbers.reserve(rows);
    if (metadata != own_metadata()) {
        keep(metadata);
        columns_.extra.ids.push_back(kMetadataId);
        columns_.extra.ends.push_back(static_cast<std::int64_t>(columns_.extra.bytes.size()));
    }
}

bool Intake::add(const Reader& message) {
    clear();
    place_ = message.place();
    read_node<Care::Everything>(message, *this);
    if (id_ > kLargest) refuse(kIdBeyond);
    if (!columns_.id.empty()) {
        const std::int64_t last = columns_.id.back();
        if (static_cast<std::int64_t>(id_) < last) return false;
        if (static_cast<std::int64_t>(id_) == last) refuse(kIdRepeated);
    }
    commit();
    return true;
}

void Intake::clear() {
    id_ = micros_ = 0;
    type_ = 0;
    said_ = 0;
    name_ = {};
    sources_.clear();
    rest_.clear();
}

void Intake::name(std::string_view text, const Reader& reader) {
    check_utf8(reader, text);
    name_ = text;
}

void Intake::attribute(const Attribute& found, std::string_view whole, const Reader&) {
    // If a node has several attributes with the same name, the first is used.
    if (found.key == Key::Other || says(found.key) || !has_column(found)) {
        rest_.push_back(whole);
    } else {
        said_ |= 1U << static_cast<unsigned>(found.key);
    }
}

// Store the value of an attribute that has a column. Returns whether the attribute has a column.
bool Intake::has_column(const Attribute& found) {
    const auto number = static_cast<std::size_t>(found.key);
    if (found.key == Key::IsCpuOp && found.holds_integer()) {
        is_cpu_op_ = found.value.bits != 0;
    } else if (found.key == Key::Group && found.holds_string()) {
        group_ = group_named(found.value.text);
    } else if (number < kIntegerColumns && found.holds_integer()) {
        integers_[number] = bounded(found);
    } else if (number >= kIntegerColumns && number < kIntegerColumns + kTextColumns && found.holds_string()) {
        texts_[number - kIntegerColumns] = found.value.text;
    } else {
        return false;
    }
    return true;
}

void Intake::other(std::uint32_t key, std::string_view whole, const Reader& reader) {
    if (key == chakra::key(NodeField::kStartMicros, Wire::Varint) && whole.size() == 2 && whole[1] == 0)
        return;
    if (key == chakra::key(NodeField::kInputs, Wire::Bytes) ||
        key == chakra::key(NodeField::kOutputs, Wire::Bytes)) {
        Reader info = reader.within(whole);
        info.key();
        check_info(reader, info.bytes());
    }
    rest_.push_back(whole);
}

std::int64_t Intake::bounded(const Attribute& found) const {
    if (const std::string why = wrong_with(found); !why.empty()) refuse(why);
    return static_cast<std::int64_t>(found.value.bits);
}

// Return the number of the group *name*. The names "" and "0" stand for the group of all ranks.
std::int64_t Intake::group_named(std::string_view name) const {
    std::int64_t group = 0;
    for (const char letter : name) {
        if (letter < '0' || letter > '9' || name.size() > kGroupDigits) {
            refuse("process group '" + std::string(name) +
                   "' is not a number, which simulators require. Number the groups.");
        }
        group = group * 10 + (letter - '0');
    }
    return group;
}

void Intake::commit() {
    const std::size_t row = columns_.id.size();
    if (const std::string why = wrong_with_micros(micros_); !why.empty()) refuse(why);
    columns_.id.push_back(static_cast<std::int64_t>(id_));
    columns_.type.push_back(type_ < 0 || type_ > kLastNodeType ? 0 : static_cast<std::uint8_t>(type_));
    constexpr auto kDuration = static_cast<std::size_t>(Key::DurationNs);
    if (!says(Key::DurationNs)) integers_[kDuration] = static_cast<std::int64_t>(micros_) * 1000;
    for (std::size_t i = 0; i < kIntegerColumns; ++i) {
        if (i != kDuration && !says(static_cast<Key>(i))) continue;
        const std::int64_t unset = kKnown[i].negative_is_unset ? -1 : 0;
        set(columns_.integers[i], row, rows_, unset, integers_[i]);
    }
    if (says(Key::Group)) set(columns_.group, row, rows_, std::int64_t{0}, group_);
    if (says(Key::IsCpuOp))
        set(columns_.is_cpu_op, row, rows_, std::uint8_t{0}, static_cast<std::uint8_t>(is_cpu_op_));
    commit_texts(row);
    commit_edges();
    commit_rest();
}

void Intake::commit_texts(std::size_t row) {
    columns_.name.numbers.push_back(columns_.name.texts.number(name_));
    constexpr auto kKind = static_cast<std::size_t>(Key::Kind);
    if (!says(Key::Kind)) texts_[0] = kind_of_type(columns_.type.back());
    for (std::size_t i = kKind; i < kKind + kTextColumns; ++i) {
        if (i != kKind && !says(static_cast<Key>(i))) continue;
        TextColumn& column = columns_.texts[i - kKind];
        if (column.numbers.empty()) column.numbers.assign(rows_, column.texts.number(kKnown[i].unset));
        column.numbers[row] = column.texts.number(texts_[i - kKind]);
    }
}

// Store the edges of a node. Each source is stored once; a source with both a data and a control edge
// counts as data.
void Intake::commit_edges() {
    if (!std::is_sorted(sources_.begin(), sources_.end())) std::sort(sources_.begin(), sources_.end());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const auto& [source, kind] = sources_[i];
        if (i > 0 && sources_[i - 1].first == source) continue;
        if (source > kLargest) refuse(kSourceBeyond);
        if (source == id_) refuse(kWaitsForItself);
        columns_.edges.push_back(static_cast<std::int64_t>(source));
        columns_.edges.push_back(static_cast<std::int64_t>(id_));
        columns_.edges.push_back(kind);
    }
}

// Store the fields of a node that have no column. A node type that does not fit into its column is
// stored as an extra field. The extra field is written last, because readers use the last value of a
// field.
void Intake::commit_rest() {
    ExtraColumns& extra = columns_.extra;
    const std::size_t before = extra.bytes.size();
    if (type_ < 0 || type_ > kLastNodeType) {
        std::string type;
        put_number(type, NodeField::kType, type_);
        keep(type);
    }
    for (const std::string_view field : rest_) keep(field);
    if (extra.bytes.size() == before) return;
    extra.ids.push_back(columns_.id.back());
    extra.ends.push_back(static_cast<std::int64_t>(extra.bytes.size()));
}

// Append encoded fields that have no column. The memory for the worst case is reserved at once, because
// unfilled pages use no memory, and growing in steps would copy the bytes.
void Intake::keep(std::string_view bytes) {
    if (columns_.extra.bytes.empty()) columns_.extra.bytes.reserve(bytes.size() + size_);
    columns_.extra.bytes.insert(columns_.extra.bytes.end(), bytes.begin(), bytes.end());
}

// Raise an error if the file starts with a node, or if its metadata has attributes instead of a version.
void refuse_early(const Reader& metadata, std::string_view body) {
    const bool is_node = body.starts_with(static_cast<char>(key(NodeField::kId, Wire::Varint)));
    const std::string_view version = is_node ? std::string_view() : read_metadata(metadata);
    const auto is_control = [](unsigned char letter) { return letter < 0x20 || letter == 0x7F; };
    if (!is_node && std::none_of(version.begin(), version.end(), is_control)) return;
    throw Refusal(
        " does not start with the metadata of Chakra 0.0.4 or later: an older version wrote it, or a tool "
        "that "
        "left the metadata out. Write it again with a newer one, or convert its traces.");
}

// Reads only the id of a node.
struct IdOnly {
    std::uint64_t number = 0;

    void id(std::uint64_t found, const Reader&) { number = found; }
    void name(std::string_view, const Reader&) {}
    void type(std::int32_t, const Reader&) {}
    void ctrl_dep(std::uint64_t) {}
    void data_dep(std::uint64_t) {}
    void duration_micros(std::uint64_t) {}
    void attribute(const Attribute&, std::string_view, const Reader&) {}
    void other(std::uint32_t, std::string_view, const Reader&) {}
};

// Return the nodes of a file, or nullopt if the nodes are not in ascending order of ids.
std::optional<NodeColumns> read_sorted(Reader reader, std::string_view metadata, std::size_t count) {
    Intake intake(metadata, count, reader.left());
    while (!reader.done())
        if (!intake.add(reader.within(reader.message()))) return std::nullopt;
    return intake.take();
}

NodeColumns read_unsorted(Reader reader, std::string_view metadata, std::size_t count) {
    const std::size_t size = reader.left();
    std::vector<std::pair<std::uint64_t, std::string_view>> nodes;
    nodes.reserve(count);
    while (!reader.done()) {
        const std::string_view body = reader.message();
        IdOnly only;
        read_node<Care::WhatMatters>(reader.within(body), only);
        nodes.emplace_back(only.number, body);
    }
    const auto earlier = [](const auto& one, const auto& other) { return one.first < other.first; };
    std::stable_sort(nodes.begin(), nodes.end(), earlier);
    Intake intake(metadata, count, size);
    for (const auto& node : nodes) intake.add(reader.within(node.second));
    return intake.take();
}

}  // namespace

NodeColumns read_columns(std::string_view file) {
    try {
        Reader reader(file);
        if (reader.done())
            throw Refusal(" is empty: a Chakra file starts with its metadata. Write it again.");
        const std::string_view metadata = reader.message();
        refuse_early(reader.within(metadata), metadata);
        const std::size_t count = count_messages(reader);
        if (std::optional<NodeColumns> sorted = read_sorted(reader, metadata, count))
            return std::move(*sorted);
        return read_unsorted(reader, metadata, count);
    } catch (const Damaged& error) {
        throw Refusal(" is not a Chakra .et file or is damaged at byte " + std::to_string(error.byte) + ": " +
                      error.what() + ". Convert the trace set again.");
    }
}

}  // namespace chakrascope::chakra
