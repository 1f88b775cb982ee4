// Two complementary binary trees, which chunks use alternately. A double binary tree always runs an
// all-reduce, regardless of the configured collective.
//
// With 2^k members, one member is the root. The other members form a complete binary tree, numbered in
// order from 1 to 2^k - 1. The number of trailing zero bits of a member's number is its height above
// the leaves.
#include <bit>

#include "algorithm.h"

namespace chakrascope::engine {
namespace {

class DoubleBinaryTree final : public Algorithm {
  public:
    DoubleBinaryTree(Rank& rank, Stream& stream)
        : Algorithm(rank, stream), size_(stream.phase().size), max_tree_(stream.phase().max_tree) {
        const std::int32_t number = max_tree_ ? ring_.position + 1 : ring_.position;
        const std::int32_t top = ring_.count / 2;
        if (number == 0 || number == ring_.count) {
            role_ = Role::Root;
            left_ = at(top);
            return;
        }
        const std::int32_t bit = 1 << std::countr_zero(static_cast<std::uint32_t>(number));
        role_ = bit == 1 ? Role::Leaf : Role::Inner;
        parent_ = number == top ? root() : at((number & ~bit) | (bit << 1));
        if (role_ == Role::Inner) {
            left_ = at(number - bit / 2);
            right_ = at(number + bit / 2);
        }
    }

    void start() override {
        switch (role_) {
            case Role::Leaf:
                bundle(false, false, Side::ToMemory, size_);
                return;
            case Role::Inner:
                receive(left_, size_);
                receive(right_, size_);
                return;
            case Role::Root:
                receive(left_, size_);
                return;
        }
    }

  private:
    enum class Role : std::uint8_t { Leaf, Inner, Root };

    std::int32_t at(std::int32_t number) const { return max_tree_ ? number - 1 : number; }
    std::int32_t root() const { return max_tree_ ? ring_.count - 1 : 0; }

    void received(std::uint64_t) override {
        ++received_;
        switch (role_) {
            case Role::Leaf:
                bundle(false, false, Side::ToNpu, size_);
                return;
            case Role::Inner:
                bundle(true, received_ > 1, Side::ToNpu, size_);
                return;
            case Role::Root:
                bundle(true, true, Side::ToNpu, size_);
                return;
        }
    }

    void credited(std::uint64_t) override {
        ++credits_;
        if (role_ == Role::Root) return send_down();
        const int children = role_ == Role::Leaf ? 1 : 2;
        if (credits_ == children) {
            send(parent_, size_);
            receive(parent_, size_);
        } else if (credits_ > children) {
            send_down();
        }
    }

    void send_down() {
        if (role_ != Role::Leaf) send(left_, size_);
        if (role_ == Role::Inner) send(right_, size_);
        finish();
    }

    const std::uint64_t size_;
    const bool max_tree_;
    Role role_ = Role::Root;
    std::int32_t parent_ = 0, left_ = 0, right_ = 0;
    int received_ = 0, credits_ = 0;
};

}  // namespace

std::unique_ptr<Algorithm> make_double_binary_tree(Rank& rank, Stream& stream) {
    return std::make_unique<DoubleBinaryTree>(rank, stream);
}

}  // namespace chakrascope::engine
