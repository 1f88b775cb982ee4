// Reads host traces (ExecutionTraceObserver JSON) into columns.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "texts.h"

namespace chakrascope::converter {

// The operators with a record-function id, in the order of the file. *kind* is a row of KindColumns,
// which is shared by operators with arguments that differ only in the identity of tensors. The storages
// of the tensors of operator i, inputs first, are storages[bounds[i]] to storages[bounds[i + 1]].
// *offsets* are the start offsets of the tensors in these storages. The inputs end at inputs_end[i],
// and the tensors of the first argument end at first_end[i].
struct OperatorColumns {
    std::vector<std::int64_t> record_id, thread, bounds{0}, inputs_end, first_end, storages, offsets;
    std::vector<std::int32_t> kind;
};

// Name, schema and arguments of kinds of operators, as numbers of interned texts. The text of the
// arguments is the JSON array [inputs, outputs, shapes of inputs, shapes of outputs, types of inputs],
// in which identities of tensors are 0.
struct KindColumns {
    std::vector<std::int32_t> name, schema, arguments;
};

class HostReader : private Parts {
  public:
    HostReader() : document_("nodes", *this) {}
    HostReader(const HostReader&) = delete;
    HostReader& operator=(const HostReader&) = delete;

    // Read the next bytes of the file. Raises FormatError.
    void feed(std::string_view bytes) { document_.feed(bytes); }
    // Finish reading at the end of the file. Raises FormatError if the file is incomplete.
    void finish();

    OperatorColumns operators;
    KindColumns kinds;
    Texts texts;
    // The arguments of the nodes that list process groups, as JSON.
    std::vector<std::string> group_lists;
    // The version of the format, as JSON.
    std::string schema;
    // The process id, -1 if the trace does not contain an id.
    std::int64_t process = -1;

  private:
    // The inputs or the outputs of a node. *first* is the number of storages in the first argument.
    struct Side {
        std::string values, shapes, types;
        std::vector<std::int64_t> storages, offsets;
        std::size_t first = 0;
        std::string_view raw;
        bool flat = false;
        bool damaged = false;

        void clear();
    };
    struct Node;

    void element(Scanner& scanner) override;
    void member(std::string_view key, const Token& value) override;
    void keep(const Node& node);
    std::int32_t text_of(const Token& token) { return texts.number(token.text(scratch_)); }

    static void take_side(Scanner& scanner, Side& side);
    static void take_values(Scanner& scanner, Side& side);
    static void take_argument(Scanner& scanner, Side& side, std::size_t depth);

    Document document_;
    Texts kind_numbers_;
    Side inputs_, outputs_;
    std::vector<std::int64_t> ids_;  // ids of all nodes
    std::string scratch_;
};

}  // namespace chakrascope::converter
