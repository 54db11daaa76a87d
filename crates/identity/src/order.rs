//! The number that distinguishes objects with equal kind, name, creator and size.

use std::collections::HashMap;

use numaloc_model::plan::ObjectKey;

use crate::object::NewObject;

/// Counts the objects of one process image.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    next: HashMap<ObjectKey, u32>,
}

impl Orders {
    /// The identity of an object created by the thread of path `creator`, after all objects named before.
    pub fn key(&mut self, object: &NewObject<'_>, creator: &str) -> ObjectKey {
        let mut key = object.first_key(creator);
        let next = self.next.entry(key.clone()).or_default();
        key.order = *next;
        *next += 1;
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::anonymous;

    #[test]
    fn order_counts_objects_that_are_equal_in_everything_else() {
        let mut orders = Orders::default();
        let call = anonymous(5000);
        let object = NewObject::of_map(&call, 0x1000).unwrap();
        assert_eq!(object.size, 8192);
        assert_eq!(orders.key(&object, "0").order, 0);
        assert_eq!(orders.key(&object, "0.1").order, 0);
        assert_eq!(orders.key(&object, "0").order, 1);
        let other = anonymous(9000);
        let larger = NewObject::of_map(&other, 0x1000).unwrap();
        assert_eq!(orders.key(&larger, "0").order, 0);
    }
}
