#include "host_reader.h"

#include <algorithm>
#include <array>
#include <utility>

namespace chakrascope::converter {

// The members of a node of a host trace, except the node's arguments.
struct HostReader::Node {
    Token id, name, parent, record_id, thread, schema, input_shapes, output_shapes, input_types;

    Token* attribute(std::string_view key) {
        if (key == "rf_id") return &record_id;
        if (key == "tid") return &thread;
        if (key == "op_schema") return &schema;
        return nullptr;
    }

    Token* field(std::string_view key) {
        if (key == "id") return &id;
        if (key == "name") return &name;
        if (key == "ctrl_deps" || key == "parent") return &parent;  // "parent" before schema 1.0.3
        if (key == "input_shapes") return &input_shapes;
        if (key == "output_shapes") return &output_shapes;
        if (key == "input_types") return &input_types;
        return attribute(key);
    }
};

namespace {

constexpr std::string_view kGroupsNode = "process_group:init";
// Prefix of the name of the root node, which stands for the process and is its own parent.
constexpr std::string_view kRootNode = "[pytorch|profiler|execution_";
// The fields of a tensor: tensor, storage, offset, elements, bytes per element, device.
constexpr std::size_t kTensorFields = 6;

bool is_tensor(const std::array<Token, kTensorFields>& fields, std::int64_t& storage, std::int64_t& offset) {
    std::int64_t ignored = 0;
    if (!fields[2].is_true_integer(offset)) offset = 0;
    return fields[5].kind == Kind::String && fields[1].is_true_integer(storage) &&
           fields[3].is_true_integer(ignored) && fields[4].is_true_integer(ignored);
}

void append(std::string& text, const Token& token) {
    const bool quoted = token.kind == Kind::String;
    if (quoted) text.push_back('"');
    text.append(token.kind == Kind::Null ? "null" : token.raw);
    if (quoted) text.push_back('"');
}

}  // namespace

void HostReader::finish() {
    document_.finish();
    if (!std::is_sorted(ids_.begin(), ids_.end())) std::sort(ids_.begin(), ids_.end());
    const auto found = std::adjacent_find(ids_.begin(), ids_.end());
    if (found != ids_.end()) throw FormatError("two nodes have the id " + std::to_string(*found));
}

void HostReader::Side::clear() {
    values.clear();
    shapes.clear();
    types.clear();
    storages.clear();
    offsets.clear();
    first = 0;
    raw = {};
    flat = damaged = false;
}

void HostReader::element(Scanner& scanner) {
    Node node, attributes;
    inputs_.clear();
    outputs_.clear();
    scanner.object([&](const Token& key) {
        if (key.raw == "inputs" || key.raw == "outputs") {
            take_side(scanner, key.raw == "inputs" ? inputs_ : outputs_);
            return;
        }
        if (key.raw != "attrs") {
            const Token value = scanner.value();
            if (Token* const wanted = node.field(key.raw)) *wanted = value;
            return;
        }
        scanner.array([&] {
            Token name, value;
            scanner.object([&](const Token& part) {
                const Token found = scanner.value();
                if (part.raw == "name") name = found;
                if (part.raw == "value") value = found;
            });
            if (name.kind != Kind::String) scanner.fail("an attribute without a name");
            if (Token* const wanted = attributes.attribute(name.raw)) *wanted = value;
        });
    });
    if (attributes.record_id.kind != Kind::Absent) node.record_id = attributes.record_id;
    if (attributes.thread.kind != Kind::Absent) node.thread = attributes.thread;
    if (attributes.schema.kind != Kind::Absent) node.schema = attributes.schema;
    keep(node);
}

void HostReader::member(std::string_view key, const Token& value) {
    if (key == "pid") process = value.integer(-1);
    if (key != "schema") return;
    if (value.kind != Kind::String) throw FormatError("its schema is not text");
    schema = value.text(scratch_);
}

void HostReader::keep(const Node& node) {
    std::int64_t id = 0, parent = 0, record = 0, thread = 0;
    if (!node.id.is_true_integer(id)) throw FormatError("a node has no number");
    if (node.name.kind != Kind::String) throw FormatError("node " + std::to_string(id) + " has no name");
    if (node.parent.is_true_integer(parent) && parent == id && !node.name.raw.starts_with(kRootNode))
        throw FormatError("node " + std::to_string(id) + " '" + printable(node.name.raw) +
                          "' depends on itself");
    ids_.push_back(id);
    if (node.name.raw.find(kGroupsNode) != std::string_view::npos) {
        group_lists.emplace_back(inputs_.raw);
        return;
    }
    if (!node.record_id.is_true_integer(record) || record <= 0) return;
    node.thread.is_true_integer(thread);
    for (const auto& [side, shapes] :
         {std::pair{&inputs_, &node.input_shapes}, {&outputs_, &node.output_shapes}}) {
        const bool apart = side->values.empty() || side->flat;
        if (apart && shapes->kind == Kind::Array) side->shapes = shapes->raw;
        if (side->damaged || (apart && shapes->kind != Kind::Array && shapes->kind != Kind::Absent)) {
            throw FormatError("the arguments of node " + std::to_string(id) + " '" +
                              printable(node.name.raw) + "' cannot be read");
        }
        if (side->values.empty()) side->values.assign("[]", 2);
        if (side->shapes.empty()) side->shapes.assign("[]", 2);
    }
    if (node.input_types.kind == Kind::Array) inputs_.types = node.input_types.raw;
    if (inputs_.types.empty()) inputs_.types.assign("[]", 2);
    const std::int32_t name = text_of(node.name);
    const std::int32_t declared = node.schema.kind == Kind::String ? text_of(node.schema) : texts.number("");
    scratch_.clear();
    for (const std::string* part :
         {&inputs_.values, &outputs_.values, &inputs_.shapes, &outputs_.shapes, &inputs_.types})
        scratch_.append(scratch_.empty() ? "[" : ",").append(*part);
    scratch_.push_back(']');
    const std::array<std::int32_t, 3> kind{name, declared, texts.number(scratch_)};
    const std::int32_t number =
        kind_numbers_.number({reinterpret_cast<const char*>(kind.data()), sizeof kind});
    if (static_cast<std::size_t>(number) == kinds.name.size()) {
        kinds.name.push_back(kind[0]);
        kinds.schema.push_back(kind[1]);
        kinds.arguments.push_back(kind[2]);
    }
    const auto begin = static_cast<std::int64_t>(operators.storages.size());
    for (const Side* side : {&inputs_, &outputs_}) {
        operators.storages.insert(operators.storages.end(), side->storages.begin(), side->storages.end());
        operators.offsets.insert(operators.offsets.end(), side->offsets.begin(), side->offsets.end());
    }
    operators.record_id.push_back(record);
    operators.thread.push_back(thread);
    operators.kind.push_back(number);
    operators.first_end.push_back(begin + static_cast<std::int64_t>(inputs_.first));
    operators.inputs_end.push_back(begin + static_cast<std::int64_t>(inputs_.storages.size()));
    operators.bounds.push_back(static_cast<std::int64_t>(operators.storages.size()));
}

// Read the inputs or the outputs of a node. In schema 1.0.1, a node has a list of values. In later
// schemas, a node has an object that contains the list.
void HostReader::take_side(Scanner& scanner, Side& side) {
    side.clear();
    const char next = scanner.peek();
    const char* const start = scanner.position();
    if (next == '[') {
        side.flat = true;
        take_values(scanner, side);
    } else if (next == '{') {
        scanner.object([&](const Token& key) {
            const bool values = key.raw == "values";
            if (values && scanner.peek() == '[') {
                take_values(scanner, side);
                return;
            }
            const Token value = scanner.value();
            if (key.raw == "shapes" && value.kind == Kind::Array) side.shapes = value.raw;
            if (key.raw == "types" && value.kind == Kind::Array) side.types = value.raw;
            side.damaged |= values || (key.raw == "shapes" && value.kind != Kind::Array);
        });
        if (side.values.empty()) side.values.assign("[]", 2);
    } else {
        scanner.value();
        side.damaged = true;
    }
    side.raw = {start, static_cast<std::size_t>(scanner.position() - start)};
}

void HostReader::take_values(Scanner& scanner, Side& side) {
    side.values.assign(1, '[');
    side.storages.clear();
    side.offsets.clear();
    bool first = true;
    scanner.array([&] {
        if (!first) side.values.push_back(',');
        take_argument(scanner, side, 0);
        if (first) side.first = side.storages.size();
        first = false;
    });
    side.values.push_back(']');
}

// Read an argument, which may be nested. Storage and offset of a tensor are recorded, and the tensor is
// written without its identity.
void HostReader::take_argument(Scanner& scanner, Side& side, std::size_t depth) {
    if (scanner.peek() != '[') {
        append(side.values, scanner.value());
        return;
    }
    if (depth == kDeepest) scanner.fail("values are nested too deep");
    const std::size_t begin = side.values.size(), known = side.storages.size();
    std::array<Token, kTensorFields> fields;
    std::size_t count = 0;
    side.values.push_back('[');
    scanner.array([&] {
        if (count > 0) side.values.push_back(',');
        Token field;
        if (scanner.peek() == '[') {
            take_argument(scanner, side, depth + 1);
        } else {
            field = scanner.value();
            append(side.values, field);
        }
        if (count < kTensorFields) fields[count] = field;
        ++count;
    });
    side.values.push_back(']');
    std::int64_t storage = 0, offset = 0;
    if (count != kTensorFields || !is_tensor(fields, storage, offset)) return;
    side.storages.resize(known);
    side.offsets.resize(known);
    side.storages.push_back(storage);
    side.offsets.push_back(offset);
    side.values.resize(begin);
    side.values += "[0,0,0,";
    append(side.values, fields[3]);
    side.values.push_back(',');
    append(side.values, fields[4]);
    side.values.push_back(',');
    append(side.values, fields[5]);
    side.values.push_back(']');
}

}  // namespace chakrascope::converter
