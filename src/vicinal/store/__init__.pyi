from vicinal.ledger.renewal import Renewal as Renewal
from vicinal.store.base_store import DEFAULT as DEFAULT
from vicinal.store.evaluation import Evaluation as Evaluation
from vicinal.store.requests import Query as Query
from vicinal.store.requests import Reply as Reply
from vicinal.store.status import Quota as Quota
from vicinal.store.store import Store as Store
from vicinal.store.store_schema import StoreExtractor as StoreExtractor
